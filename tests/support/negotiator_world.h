/* negotiator_world.h - a negotiator that is fed with reports and whose verdicts are taken apart.
 * For tests; on the main thread. */
#ifndef DT_TEST_NEGOTIATOR_WORLD_H
#define DT_TEST_NEGOTIATOR_WORLD_H

#include "base/status.h"
#include "core/negotiator.h"
#include "core/wire.h"

#define ENTRIES_MAX 256

typedef struct entry {
    dt_entry_kind_t kind;
    uint32_t id;
    dtrain_status_t status;
    uint32_t step; /* of an error */
    char name[64];
    char text[DT_ERROR_MAX];
    dt_signature_t signature;
    uint64_t absent; /* a bit a rank */
} entry_t;

typedef struct negotiator_world {
    dt_world_t joined;
    dt_topology_t topology; /* of `joined` */
    dt_psets_t psets;
    dt_negotiator_t *negotiator;
    int64_t now_ns;
    int64_t room; /* of the next verdict; world_open: unlimited */
    dt_buffer_t report, verdict, part;
    int num_entries;
    entry_t entries[ENTRIES_MAX]; /* of the last verdict */
} negotiator_world_t;

void world_open(negotiator_world_t *world, int size);
void world_close(negotiator_world_t *world);

/* Adds a process set, as a verdict would. */
dtrain_pset_t add_pset(negotiator_world_t *world, const int *ranks, int n);

/* A float32 allreduce of `count` elements. */
dt_signature_t allreduce_of(int64_t count);

/* One rank's report of one thing, which succeeds. */
void report_new(negotiator_world_t *world, int rank, const char *name,
                const dt_signature_t *signature);
void report_ready(negotiator_world_t *world, int rank, uint32_t id);
void report_new_stamped(negotiator_world_t *world, int rank, const char *name,
                        const dt_signature_t *signature, dt_stamp_t stamp);
void report_stamped(negotiator_world_t *world, int rank, uint32_t id, dt_stamp_t stamp);
void report_refused(negotiator_world_t *world, int rank, const char *name, dtrain_status_t status,
                    const char *text);
void report_withdrawn(negotiator_world_t *world, int rank, const char *name, double seconds);

/* The same without a check of what comes back. */
dtrain_status_t try_ready(negotiator_world_t *world, int rank, uint32_t id);
dtrain_status_t try_stamped(negotiator_world_t *world, int rank, uint32_t id, dt_stamp_t stamp);
dtrain_status_t try_new(negotiator_world_t *world, int rank, const char *name,
                        const dt_signature_t *signature);

/* Takes a verdict, which may be empty, apart. Returns how many entries it has. */
int take_verdict(negotiator_world_t *world);

/* Takes a verdict of one entry. */
const entry_t *take_one(negotiator_world_t *world);

/* All ranks report the name; returns the verdict's one entry. */
const entry_t *agree(negotiator_world_t *world, const char *name, const dt_signature_t *signature);

/* The part of the last verdict that `rank` is told, over the entries; 0 when it is told nothing. */
int take_part(negotiator_world_t *world, int rank);

#endif
