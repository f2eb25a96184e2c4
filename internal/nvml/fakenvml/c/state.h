// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

/*
 * The state of the pretended machine: a text file, read anew by every NVML
 * call, so that a test or a person can change it while a program runs.
 * doc.go describes the format.
 */
#ifndef FAKENVML_STATE_H
#define FAKENVML_STATE_H

#include <nvml.h>

/* go-nvml's header declares handles as structs around a pointer. */
#define NO_DEVICE ((nvmlDevice_t){NULL})

enum { NODE = -1 }; /* the "device" that node-wide lines and calls belong to */

/* One `key = value` line and the section it stands in. */
struct entry {
    int device;
    const char *key, *value;
};

/* One [gpu] or [mig] section. */
struct device {
    int parent; /* device number of the [gpu] a [mig] stands under, or NODE */
};

struct state {
    struct parsed *owner; /* keeps what follows, until call_end */
    char *text;
    struct entry *entries;
    int entry_count;
    struct device *devices;
    int device_count;
};

/* A call in progress: the state it sees and the device it is about. */
struct call {
    struct state state;
    int device;
};

/*
 * call_begin reads the state, applies the hang and fail lines that name the
 * function, and finds the device; NO_DEVICE stands for the node. call_end must
 * follow in every case.
 */
nvmlReturn_t call_begin(struct call *c, nvmlDevice_t handle, const char *function);
void call_end(struct call *c);

/* The value of a key of the call's device, or NULL: "this GPU cannot tell". */
const char *call_value(const struct call *c, const char *key);

/* The nth value of a key that may stand several times, or NULL. */
const char *call_value_at(const struct call *c, const char *key, int nth);

/* The same for any device of a state; NODE asks for node-wide lines. */
const char *state_value_at(const struct state *s, int device, const char *key, int nth);

/* The nth GPU, or the nth MIG instance of a GPU; NODE where there is none. */
int state_child(const struct state *s, int parent, int nth);
int state_children(const struct state *s, int parent);

/* The device with this value of a key, or NODE. */
int state_find(const struct state *s, const char *key, const char *value);

/*
 * Handles belong to a UUID, not to an index: like NVML's, they stay with their
 * GPU when indexes shift.
 */
nvmlReturn_t handle_of(const struct state *s, int device, nvmlDevice_t *out);

#endif
