// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/* What a GPU tells about itself. */
#include "answer.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    return answer_string(device, __func__, "uuid", uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    return answer_string(device, __func__, "name", name, length);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    return answer_uint(device, __func__, "minor", minor);
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    return answer_uint(device, __func__, "numa_node", node);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
    (void)sensor;
    return answer_uint(device, __func__, "temperature", celsius);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt) {
    return answer_uint(device, __func__, "power", milliwatt);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatt) {
    return answer_uint(device, __func__, "power_limit", milliwatt);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return answer_uint(device, __func__, type == NVML_CLOCK_MEM ? "memory_clock" : "sm_clock", mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return answer_uint(device, __func__, type == NVML_CLOCK_MEM ? "max_memory_clock" : "max_sm_clock", mhz);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation) {
    return answer_uint(device, __func__, "pcie_generation", generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *lanes) {
    return answer_uint(device, __func__, "pcie_width", lanes);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return answer_switch(device, __func__, "persistence_mode", mode);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return answer_switch(device, __func__, "display", mode);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
    return answer_switch(device, __func__, "retired_pages_pending", pending);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
    nvmlReturn_t ret = answer_switch(device, __func__, "ecc_mode", current);
    *pending = *current;
    return ret;
}

/* The state file has one kind of ECC error: volatile and uncorrected. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *count) {
    unsigned int n = 0;
    nvmlReturn_t ret = answer_uint(device, __func__, "ecc_uncorrected", &n);
    *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC ? n : 0;
    return ret;
}

/* ecc_l1, ecc_l2 and ecc_memory: volatile and uncorrected, too. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
                                             unsigned long long *count) {
    static const char *const keys[] = {"ecc_l1", "ecc_l2", "ecc_memory"};
    unsigned int n = 0;
    nvmlReturn_t ret = answer_uint(device, __func__, location < 3 ? keys[location] : "", &n);
    *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC ? n : 0;
    return ret;
}

/* remapped_rows = well, pending or failed */
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                       unsigned int *pending, unsigned int *failed) {
    char word[16] = "";
    nvmlReturn_t ret = answer_string(device, __func__, "remapped_rows", word, sizeof word);
    *corrected = 0;
    *pending = !strcmp(word, "pending");
    *failed = !strcmp(word, "failed");
    *uncorrected = *pending + *failed;
    return ret;
}

static nvmlReturn_t codec(nvmlDevice_t device, const char *function, const char *key, unsigned int *percent,
                          unsigned int *period_us) {
    *period_us = 1000000;
    return answer_uint(device, function, key, percent);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
    return codec(device, __func__, "encoder", percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {
    return codec(device, __func__, "decoder", percent, period_us);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS)
        for (*index = 0; state_child(&c.state, NODE, *index) != c.device;)
            ++*index;
    call_end(&c);
    return ret;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    nvmlReturn_t ret = answer_string(device, __func__, "pci_bus_id", pci->busId, sizeof pci->busId);
    if (ret == NVML_SUCCESS)
        sscanf(pci->busId, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return ret;
}

/* compute_capability = 8.6 */
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char text[16];
    nvmlReturn_t ret = answer_string(device, __func__, "compute_capability", text, sizeof text);
    if (ret == NVML_SUCCESS)
        sscanf(text, "%d.%d", major, minor);
    return ret;
}

/* utilization = <GPU %> <memory %> */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    char text[16];
    memset(rates, 0, sizeof *rates);
    nvmlReturn_t ret = answer_string(device, __func__, "utilization", text, sizeof text);
    if (ret == NVML_SUCCESS)
        sscanf(text, "%u %u", &rates->gpu, &rates->memory);
    return ret;
}
