// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/* In what condition a GPU is, as newer drivers tell it. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

/* fabric = not_started, in_progress, completed, or failed: completed with an error */
static nvmlReturn_t fabric(nvmlDevice_t device, const char *function, unsigned char *state, nvmlReturn_t *status) {
    char word[16] = "";
    nvmlReturn_t ret = answer_string(device, function, "fabric", word, sizeof word);
    if (!strcmp(word, "not_started"))
        *state = NVML_GPU_FABRIC_STATE_NOT_STARTED;
    else if (!strcmp(word, "in_progress"))
        *state = NVML_GPU_FABRIC_STATE_IN_PROGRESS;
    else if (*word)
        *state = NVML_GPU_FABRIC_STATE_COMPLETED;
    *status = strcmp(word, "failed") ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
    return ret;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    return fabric(device, __func__, &info->state, &info->status);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    if (info->version != nvmlGpuFabricInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpuFabricInfo_v2_t *second = (nvmlGpuFabricInfo_v2_t *)info;
    return fabric(device, __func__, &second->state, &second->status);
}

/* recovery_action = <a number of nvmlDeviceGpuRecoveryAction_t>; no other field is known */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    const char *action = ret == NVML_SUCCESS ? call_value(&c, "recovery_action") : NULL;
    for (int i = 0; ret == NVML_SUCCESS && i < count; i++) {
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || !action)
            continue;
        values[i].nvmlReturn = NVML_SUCCESS;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = strtoul(action, NULL, 10);
    }
    call_end(&c);
    return ret;
}

/* memory_affinity = <a memory node of the host> */
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes,
                                         nvmlAffinityScope_t scope) {
    (void)scope;
    const unsigned int bits = 8 * sizeof *nodes;
    unsigned int node = 0;
    nvmlReturn_t ret = answer_uint(device, __func__, "memory_affinity", &node);
    if (ret == NVML_SUCCESS && node >= size * bits)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memset(nodes, 0, size * sizeof *nodes);
    if (ret == NVML_SUCCESS)
        nodes[node / bits] = 1UL << node % bits;
    return ret;
}
