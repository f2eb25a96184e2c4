// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/*
 * Reading the state file. Nothing is kept between calls but the handles, and
 * the file's text as long as it is the same file.
 */
#include "state.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static char *read_file(const char *path) {
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f)
        return NULL;
    size_t size = 0, room = 1 << 14;
    char *text = malloc(room);
    for (size_t n; (n = fread(text + size, 1, room - size - 1, f)) > 0;) {
        size += n;
        if (room - size < 2)
            text = realloc(text, room *= 2);
    }
    text[size] = '\0';
    fclose(f);
    return text;
}

static char *trim(char *s) {
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

static void add_device(struct state *s, int is_mig, int *last_gpu) {
    s->devices = realloc(s->devices, (s->device_count + 1) * sizeof *s->devices);
    s->devices[s->device_count].parent = is_mig ? *last_gpu : NODE;
    if (!is_mig)
        *last_gpu = s->device_count;
    s->device_count++;
}

static void add_entry(struct state *s, int device, char *line) {
    char *eq = strchr(line, '=');
    if (!eq)
        return;
    *eq = '\0';
    s->entries = realloc(s->entries, (s->entry_count + 1) * sizeof *s->entries);
    s->entries[s->entry_count++] = (struct entry){device, trim(line), trim(eq + 1)};
}

static void parse(struct state *s) {
    int current = NODE, last_gpu = NODE;
    char *rest = s->text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        line = trim(line);
        if (*line == '#' || *line == '\0')
            continue;
        if (!strcmp(line, "[gpu]") || !strcmp(line, "[mig]")) {
            add_device(s, line[1] == 'm', &last_gpu);
            current = s->device_count - 1;
        } else {
            add_entry(s, current, line);
        }
    }
}

/* The file as it was last read, with the number of those who look at it. */
struct parsed {
    struct state state;
    struct stat file;
    int users;
};

static struct parsed *newest;
static pthread_mutex_t newest_lock = PTHREAD_MUTEX_INITIALIZER;

static void leave(struct parsed *p) {
    if (!p || --p->users > 0)
        return;
    free(p->state.text);
    free(p->state.entries);
    free(p->state.devices);
    free(p);
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Makes newest what the file is now, or NULL if there is none. */
static void refresh(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat file;
    int exists = path && stat(path, &file) == 0;
    if (exists && newest && same_file(&file, &newest->file))
        return;
    leave(newest);
    newest = NULL;
    char *text = exists ? read_file(path) : NULL;
    if (!text)
        return;
    newest = calloc(1, sizeof *newest);
    newest->users = 1;
    newest->file = file;
    newest->state.text = text;
    newest->state.owner = newest;
    parse(&newest->state);
}

/* A machine without a state file is one whose driver is not there. */
static nvmlReturn_t state_read(struct state *s) {
    memset(s, 0, sizeof *s);
    pthread_mutex_lock(&newest_lock);
    refresh();
    if (newest) {
        newest->users++;
        *s = newest->state;
    }
    pthread_mutex_unlock(&newest_lock);
    return s->owner ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

static void state_free(struct state *s) {
    pthread_mutex_lock(&newest_lock);
    leave(s->owner);
    pthread_mutex_unlock(&newest_lock);
}

const char *state_value_at(const struct state *s, int device, const char *key, int nth) {
    for (int i = 0; i < s->entry_count; i++)
        if (s->entries[i].device == device && !strcmp(s->entries[i].key, key) && nth-- == 0)
            return s->entries[i].value;
    return NULL;
}

int state_find(const struct state *s, const char *key, const char *value) {
    for (int i = 0; i < s->entry_count; i++)
        if (!strcmp(s->entries[i].key, key) && !strcasecmp(s->entries[i].value, value))
            return s->entries[i].device;
    return NODE;
}

int state_child(const struct state *s, int parent, int nth) {
    for (int d = 0; d < s->device_count; d++)
        if (s->devices[d].parent == parent && nth-- == 0)
            return d;
    return NODE;
}

int state_children(const struct state *s, int parent) {
    int n = 0;
    while (state_child(s, parent, n) != NODE)
        n++;
    return n;
}

/* --- handles --- */

struct nvmlDevice_st {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
};

static struct nvmlDevice_st handles[256];
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

nvmlReturn_t handle_of(const struct state *s, int device, nvmlDevice_t *out) {
    const char *uuid = state_value_at(s, device, "uuid", 0);
    if (device == NODE || !uuid)
        return NVML_ERROR_NOT_FOUND;
    nvmlReturn_t ret = NVML_ERROR_MEMORY;
    pthread_mutex_lock(&handles_lock);
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        if (!*handles[i].uuid)
            snprintf(handles[i].uuid, sizeof handles[i].uuid, "%s", uuid);
        if (!strcmp(handles[i].uuid, uuid)) {
            out->handle = &handles[i];
            ret = NVML_SUCCESS;
            break;
        }
    }
    pthread_mutex_unlock(&handles_lock);
    return ret;
}

/* --- fail and hang --- */

static const struct {
    const char *name;
    nvmlReturn_t code;
} codes[] = {
    {"SUCCESS", NVML_SUCCESS},
    {"UNINITIALIZED", NVML_ERROR_UNINITIALIZED},
    {"INVALID_ARGUMENT", NVML_ERROR_INVALID_ARGUMENT},
    {"NOT_SUPPORTED", NVML_ERROR_NOT_SUPPORTED},
    {"NO_PERMISSION", NVML_ERROR_NO_PERMISSION},
    {"NOT_FOUND", NVML_ERROR_NOT_FOUND},
    {"DRIVER_NOT_LOADED", NVML_ERROR_DRIVER_NOT_LOADED},
    {"TIMEOUT", NVML_ERROR_TIMEOUT},
    {"IRQ_ISSUE", NVML_ERROR_IRQ_ISSUE},
    {"LIBRARY_NOT_FOUND", NVML_ERROR_LIBRARY_NOT_FOUND},
    {"FUNCTION_NOT_FOUND", NVML_ERROR_FUNCTION_NOT_FOUND},
    {"GPU_IS_LOST", NVML_ERROR_GPU_IS_LOST},
    {"RESET_REQUIRED", NVML_ERROR_RESET_REQUIRED},
    {"LIB_RM_VERSION_MISMATCH", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
    {"UNKNOWN", NVML_ERROR_UNKNOWN},
};

static nvmlReturn_t parse_code(const char *text) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(codes[i].name, text))
            return codes[i].code;
    char *end;
    long n = strtol(text, &end, 10);
    return end != text && *end == '\0' ? (nvmlReturn_t)n : NVML_ERROR_UNKNOWN;
}

/* A pattern is a function's name; a trailing '*' stands for any ending. */
static int matches(const char *pattern, size_t length, const char *function) {
    if (length && pattern[length - 1] == '*')
        return !strncmp(pattern, function, length - 1);
    return strlen(function) == length && !strncmp(pattern, function, length);
}

static int hangs(const struct state *s, int device, const char *function) {
    const char *pattern;
    for (int n = 0; (pattern = state_value_at(s, device, "hang", n)); n++)
        if (matches(pattern, strlen(pattern), function))
            return 1;
    return 0;
}

/* fail = <function> <code> */
static nvmlReturn_t failure(const struct state *s, int device, const char *function) {
    const char *line;
    for (int n = 0; (line = state_value_at(s, device, "fail", n)); n++) {
        size_t length = strcspn(line, " \t");
        if (matches(line, length, function))
            return parse_code(line + length + strspn(line + length, " \t"));
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t look(struct call *c, nvmlDevice_t handle) {
    c->device = NODE;
    nvmlReturn_t ret = state_read(&c->state);
    const struct nvmlDevice_st *h = handle.handle;
    if (ret != NVML_SUCCESS || !h)
        return ret;
    c->device = state_find(&c->state, "uuid", h->uuid);
    return c->device == NODE ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t call_begin(struct call *c, nvmlDevice_t handle, const char *function) {
    const struct timespec pause = {0, 5 * 1000 * 1000};
    nvmlReturn_t ret = look(c, handle);
    while (ret == NVML_SUCCESS && hangs(&c->state, c->device, function)) {
        nanosleep(&pause, NULL);
        call_end(c);
        ret = look(c, handle);
    }
    return ret == NVML_SUCCESS ? failure(&c->state, c->device, function) : ret;
}

void call_end(struct call *c) {
    state_free(&c->state);
}

const char *call_value_at(const struct call *c, const char *key, int nth) {
    return state_value_at(&c->state, c->device, key, nth);
}

const char *call_value(const struct call *c, const char *key) {
    return call_value_at(c, key, 0);
}
