// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/* The library itself, the driver, and how GPUs are found. */
#include "answer.h"

#include <stdio.h>

nvmlReturn_t nvmlInit_v2(void) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, NO_DEVICE, __func__);
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlShutdown(void) {
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return answer_string(NO_DEVICE, __func__, "driver", version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    return answer_string(NO_DEVICE, __func__, "driver", version, length);
}

/* CUDA 12.4 is 12040. */
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    char text[16];
    int major = 0, minor = 0;
    nvmlReturn_t ret = answer_string(NO_DEVICE, __func__, "cuda", text, sizeof text);
    if (ret == NVML_SUCCESS && sscanf(text, "%d.%d", &major, &minor) >= 1)
        *version = major * 1000 + minor * 10;
    return ret;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, NO_DEVICE, __func__);
    if (ret == NVML_SUCCESS)
        *count = state_children(&c.state, NODE);
    call_end(&c);
    return ret;
}

/*
 * A handle is asked for through the node and about a GPU, so the fail and hang
 * lines of both count. The first call finds the GPU, the second is about it.
 */
static nvmlReturn_t handle(int (*find)(const struct state *, const void *), const void *what, const char *function,
                           nvmlDevice_t *out) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, NO_DEVICE, function);
    if (ret == NVML_SUCCESS)
        ret = handle_of(&c.state, find(&c.state, what), out);
    call_end(&c);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = call_begin(&c, *out, function);
    call_end(&c);
    return ret;
}

static int by_index(const struct state *s, const void *index) {
    return state_child(s, NODE, *(const unsigned int *)index);
}

static int by_uuid(const struct state *s, const void *uuid) {
    return state_find(s, "uuid", uuid);
}

static int by_bus_id(const struct state *s, const void *bus_id) {
    return state_find(s, "pci_bus_id", bus_id);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t ret = handle(by_index, &index, __func__, device);
    return ret == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : ret;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return handle(by_uuid, uuid, __func__, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return handle(by_bus_id, bus_id, __func__, device);
}
