// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/* Multi-Instance GPU. Without the key `mig` a GPU does not support it. */
#include "answer.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    nvmlReturn_t ret = answer_switch(device, __func__, "mig", (nvmlEnableState_t *)current);
    *pending = *current;
    return ret;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    *count = ret == NVML_SUCCESS && call_value(&c, "mig") ? 7 : 0;
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS)
        ret = handle_of(&c.state, state_child(&c.state, c.device, index), instance);
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS)
        *is_mig = c.state.devices[c.device].parent != NODE;
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, instance, __func__);
    if (ret == NVML_SUCCESS)
        ret = handle_of(&c.state, c.state.devices[c.device].parent, device);
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    return answer_uint(device, __func__, "gpu_instance", id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    return answer_uint(device, __func__, "compute_instance", id);
}
