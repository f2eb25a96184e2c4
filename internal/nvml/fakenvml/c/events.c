// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/*
 * Events. Each `event` line of a GPU is one event, delivered once to every
 * event set that was registered before the line was written.
 */
#include "answer.h"

#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GPUS = 64 };

struct nvmlEventSet_st {
    int registered;
    struct {
        nvmlDevice_t device;
        unsigned long long types;
        int seen; /* event lines already delivered */
    } gpus[MAX_GPUS];
};

static int count_events(const struct call *c) {
    int n = 0;
    while (call_value_at(c, "event", n))
        n++;
    return n;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, NO_DEVICE, __func__);
    call_end(&c);
    if (ret == NVML_SUCCESS)
        set->handle = calloc(1, sizeof(struct nvmlEventSet_st));
    return ret;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set.handle);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    call_end(&c);
    *types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeSingleBitEccError;
    return ret;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle) {
    struct nvmlEventSet_st *set = handle.handle;
    struct call c;
    nvmlReturn_t ret = call_begin(&c, device, __func__);
    if (ret == NVML_SUCCESS && set->registered == MAX_GPUS)
        ret = NVML_ERROR_MEMORY;
    if (ret == NVML_SUCCESS) {
        int i = set->registered++;
        set->gpus[i].device = device;
        set->gpus[i].types = types;
        set->gpus[i].seen = count_events(&c);
    }
    call_end(&c);
    return ret;
}

/* event = xid <number> [<GPU instance>], or event = <NVML event type> <data> */
static nvmlEventData_t parse_event(nvmlDevice_t device, const char *line) {
    nvmlEventData_t e = {.device = device, .gpuInstanceId = 0xFFFFFFFF, .computeInstanceId = 0xFFFFFFFF};
    if (sscanf(line, "xid %llu %u", &e.eventData, &e.gpuInstanceId) >= 1)
        e.eventType = nvmlEventTypeXidCriticalError;
    else
        sscanf(line, "%lli %llu", (long long *)&e.eventType, &e.eventData);
    return e;
}

/* Fetches the next event of one registered GPU, if there is one. */
static int next_event(struct nvmlEventSet_st *set, int i, const char *function, nvmlEventData_t *data) {
    struct call c;
    int found = 0;
    if (call_begin(&c, set->gpus[i].device, function) == NVML_SUCCESS) {
        int total = count_events(&c);
        if (set->gpus[i].seen > total)
            set->gpus[i].seen = total;
        while (!found && set->gpus[i].seen < total) {
            *data = parse_event(set->gpus[i].device, call_value_at(&c, "event", set->gpus[i].seen++));
            found = (data->eventType & set->gpus[i].types) != 0;
        }
    }
    call_end(&c);
    return found;
}

/*
 * Waiting costs nothing: the kernel tells of changes of the state file's folder.
 * The watch begins before the file is read, so that no change is missed.
 */
static int watch_state(void) {
    char path[PATH_MAX];
    const char *state = getenv("FAKE_NVML_STATE");
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    snprintf(path, sizeof path, "%s", state ? state : "");
    inotify_add_watch(fd, dirname(path), IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE);
    return fd;
}

static void wait_change(int fd, int timeout_ms) {
    char events[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) > 0)
        while (read(fd, events, sizeof events) > 0)
            ;
}

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *data, unsigned int timeout_ms) {
    struct nvmlEventSet_st *set = handle.handle;
    long long end = now_ms() + timeout_ms;
    int fd = watch_state();
    for (;;) {
        struct call c;
        nvmlReturn_t ret = call_begin(&c, NO_DEVICE, __func__);
        call_end(&c);
        for (int i = 0; ret == NVML_SUCCESS && i < set->registered; i++)
            if (next_event(set, i, __func__, data)) {
                close(fd);
                return NVML_SUCCESS;
            }
        long long left = end - now_ms();
        if (ret == NVML_SUCCESS && left <= 0)
            ret = NVML_ERROR_TIMEOUT;
        if (ret != NVML_SUCCESS) {
            close(fd);
            return ret;
        }
        wait_change(fd, left);
    }
}
