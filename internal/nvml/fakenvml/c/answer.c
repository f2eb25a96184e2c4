// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

#include "answer.h"

#include <stdlib.h>
#include <string.h>

unsigned long long mib(const char *value) {
    return value ? strtoull(value, NULL, 10) << 20 : 0;
}

nvmlReturn_t copy_string(const char *text, char *out, unsigned int length) {
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t answer_uint(nvmlDevice_t device, const char *function, const char *key, unsigned int *out) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, function);
    if (ret == NVML_SUCCESS) {
        const char *value = call_value(&c, key);
        if (value)
            *out = strtoul(value, NULL, 10);
        else
            ret = NVML_ERROR_NOT_SUPPORTED;
    }
    call_end(&c);
    return ret;
}

nvmlReturn_t answer_string(nvmlDevice_t device, const char *function, const char *key, char *out, unsigned int length) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, function);
    if (ret == NVML_SUCCESS)
        ret = copy_string(call_value(&c, key), out, length);
    call_end(&c);
    return ret;
}

nvmlReturn_t answer_switch(nvmlDevice_t device, const char *function, const char *key, nvmlEnableState_t *out) {
    char word[8];
    nvmlReturn_t ret = answer_string(device, function, key, word, sizeof word);
    if (ret == NVML_SUCCESS)
        *out = strcmp(word, "on") ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return ret;
}
