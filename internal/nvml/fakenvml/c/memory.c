// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/* A GPU's memory and who uses it. */
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One `process = <pid> <MiB or n/a>` line. */
static nvmlProcessInfo_t parse_process(const char *line) {
    nvmlProcessInfo_t p = {.gpuInstanceId = 0xFFFFFFFF, .computeInstanceId = 0xFFFFFFFF};
    char *rest;
    p.pid = strtoul(line, &rest, 10);
    rest += strspn(rest, " \t");
    p.usedGpuMemory = !strcmp(rest, "n/a") ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : mib(rest);
    return p;
}

/* What `used` says, or else what the processes use together. */
static unsigned long long used_bytes(const struct call *c) {
    const char *line = call_value(c, "used");
    if (line)
        return mib(line);
    unsigned long long sum = 0;
    const char *const kinds[] = {"process", "graphics_process", "mps_process"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int n = 0; (line = call_value_at(c, kinds[k], n)); n++) {
            unsigned long long used = parse_process(line).usedGpuMemory;
            sum += used == (unsigned long long)NVML_VALUE_NOT_AVAILABLE ? 0 : used;
        }
    return sum;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS && !call_value(&c, "memory"))
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS) {
        memory->total = mib(call_value(&c, "memory"));
        memory->reserved = mib(call_value(&c, "reserved"));
        memory->used = used_bytes(&c);
        memory->free = memory->total - memory->reserved - memory->used;
    }
    call_end(&c);
    return ret;
}

/* The first version counts what is reserved as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS && !call_value(&c, "memory"))
        ret = NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS) {
        memory->total = mib(call_value(&c, "memory"));
        memory->used = used_bytes(&c) + mib(call_value(&c, "reserved"));
        memory->free = memory->total - memory->used;
    }
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    unsigned int total = 0;
    nvmlReturn_t ret = answer_uint(device, __func__, "bar1", &total);
    memory->bar1Total = (unsigned long long)total << 20;
    memory->bar1Used = ret == NVML_SUCCESS ? 2ULL << 20 : 0;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return ret;
}

static nvmlReturn_t processes(nvmlDevice_t device, const char *function, const char *key, unsigned int *count,
                              nvmlProcessInfo_t *infos) {
    struct call c;
    unsigned int room = *count, n = 0;
    nvmlReturn_t ret = call_begin(&c, device, function);
    if (ret == NVML_SUCCESS) {
        const char *line;
        for (; (line = call_value_at(&c, key, n)); n++)
            if (n < room)
                infos[n] = parse_process(line);
        *count = n;
        ret = n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    }
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    return processes(device, __func__, "process", count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    return processes(device, __func__, "graphics_process", count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    return processes(device, __func__, "mps_process", count, infos);
}
