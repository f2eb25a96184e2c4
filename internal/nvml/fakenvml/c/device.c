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
