// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/*
 * How most NVML functions are answered: one key of the state file is one
 * value, and a key that is not there is a value that this GPU cannot tell
 * (NVML_ERROR_NOT_SUPPORTED).
 */
#ifndef FAKENVML_ANSWER_H
#define FAKENVML_ANSWER_H

#include "state.h"

nvmlReturn_t answer_uint(nvmlDevice_t device, const char *function, const char *key, unsigned int *out);
nvmlReturn_t answer_string(nvmlDevice_t device, const char *function, const char *key, char *out, unsigned int length);

/* "on" or "off" */
nvmlReturn_t answer_switch(nvmlDevice_t device, const char *function, const char *key, nvmlEnableState_t *out);

/* Copies text if it fits, else NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t copy_string(const char *text, char *out, unsigned int length);

/* A whole number of MiB as bytes; 0 for NULL. */
unsigned long long mib(const char *value);

#endif
