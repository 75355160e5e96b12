/*
 * gradset.h - gradient sets: gradients that are declared once and marked as ready by number.
 *
 * What a mark costs is a few atomic operations: on the gradient's own count, and on the count of
 * each run (grad_plan.h) that it is part of. The mark that completes a run hands it to the
 * coordinator as an errand, which submits it under a name that the set has prepared; after a few
 * steps that is a bit in the report, as for every operation. So all that holds for operations
 * holds here: deadlines, errors on all ranks, ranks that have joined or are lost.
 *
 * The plan follows the layout's order at first. At the end of the first step the set's first rank
 * tells the others in which order its gradients became ready; from then on the plan is that of this
 * order, and stays (it is frozen). Names of operations hold the plan's number.
 *
 * A set whose optimizer is sharded reduces to shares once its plan is frozen: of each run, rank k
 * gets the k-th part of its blocks.
 *
 * On a GPU (grad_device.h) a step may end for a stream while the host has not seen the end of its
 * operations yet. So a run counts its rounds: one that becomes complete while the round before is
 * on its way is submitted when that has come to its end.
 */
#ifndef DT_TRAIN_GRADSET_H
#define DT_TRAIN_GRADSET_H

#include "core/runtime.h"
#include "reduce/codec.h"
#include "train/grad_match.h"
#include "train/grad_plan.h"
#include "train/talk.h"

/* One parameter's gradient. */
typedef struct dt_grad_slot {
    /* [atomic] marks of this step; those that brought a gradient count DT_GRAD_BROUGHT more. */
    _Atomic uint32_t marks;
    _Atomic int32_t when;     /* [atomic] its place among those that are complete, until frozen */
    _Atomic uint32_t refused; /* [atomic] marks beyond those of this step */
    void *own;                /* [const] the caller's memory; NULL: the set's */
    void *data;               /* [const] of the parameter, for an optimizer; or NULL */
    void *stream;             /* [mark] on a GPU: in which it is made; there once it is marked */
    int was_missed;           /* [waiter] it was reported */
} dt_grad_slot_t;

#define DT_GRAD_BROUGHT 0x10000u
#define DT_GRAD_PASSES_MAX 0x7fff

/* What a round of a run came to. */
typedef struct dt_grad_outcome {
    dtrain_status_t status;
    uint32_t furthest; /* failed: the step of the rank that was furthest; 0: not known */
    char *error;       /* or NULL */
    int is_told;       /* [waiter] its round's wait has returned it */
} dt_grad_outcome_t;

/* A run on its way. */
typedef struct dt_grad_work {
    dt_errand_t errand;      /* first, so that it stands for the work */
    dtrain_gradset_t *set;   /* [const] */
    int32_t run;             /* [const] in the plan */
    _Atomic int32_t missing; /* [atomic] slices that are not ready; release: they are written */
    int64_t num_due;         /* [baton] rounds that were complete on this rank */
    /* [atomic] rounds; release: `handle` is that of the last one's operation. */
    _Atomic int64_t num_submitted;
    /* [atomic] rounds; release: their outcomes are there; the last that the engine does to the set
     * for a round, so that whoever waits may free it. */
    _Atomic int64_t num_done;
    dt_grad_outcome_t outcomes[2]; /* of rounds with even and with odd numbers */
    char *name;                    /* [const] of the operation */
    struct dt_grad_trail *trail;   /* [const] on a GPU (grad_device.h), else NULL */
} dt_grad_work_t;

struct dtrain_gradset {
    dt_runtime_t *runtime;   /* [const] */
    uint64_t generation;     /* [const] api/: of the world */
    dt_talk_t talk;          /* [const] */
    char *name;              /* [const] */
    char own_name[32];       /* [const] of what it tells other ranks, with its id */
    int64_t id;              /* [const] the same on all ranks; no other set's of the process set */
    dt_grad_terms_t terms;   /* [const] */
    int32_t timeout_ms;      /* [const] */
    dt_grad_layout_t layout; /* [const] */
    dt_grad_slot_t *slots;   /* n */
    uint8_t *memory;         /* [const] layout.bytes, shared within the node, or the device's */
    dt_device_t *device;     /* [const] in whose memory gradients lie; NULL: the host's */
    int is_window;           /* [const] NCCL has it as a window; the same on all ranks */
    dt_codec_t own_codec;    /* [const] the library's, or zeros */
    const dtrain_codec_t *codec; /* [const] that, or the program's; NULL: none */
    int is_packed;               /* [const] some gradients lie in the caller's memory */

    /* Changed only between steps, by the thread that waits or configures. */
    dt_grad_plan_t plan;
    dt_grad_work_t *works; /* one a run */
    int32_t *order;        /* of readiness, that the plan follows */
    int plan_number;
    int is_frozen;
    int is_sharded;
    int has_optimizer;
    double *sums;        /* a number a block (grad_norm.h), in the library's memory; or NULL */
    double *device_sums; /* ditto on the device */
    uint32_t passes;     /* marks that make a gradient complete */
    _Atomic int is_off;  /* [atomic] marks do not count */

    _Atomic int32_t num_complete; /* [atomic] gradients of this step, until frozen */
    _Atomic int kind;             /* [atomic] dt_stamp_kind_t of this step */
    _Atomic uint32_t num_refused; /* [atomic] marks of this step, as slots count them */

    /* [waiter]; the first two are read with the baton while runs are on their way */
    uint32_t step;  /* how many are over, by which ranks tell their steps apart (gradset_stamp.c) */
    uint32_t joins; /* joins of the process set before the first of them */
    int is_early;   /* the next step was marked before this one was ended */
    int64_t rounds; /* steps since the plan is in use */
    void *stream;   /* on a GPU: in which the gradients were last waited for */
    int is_streamed; /* ditto: the host did not wait for the end */
    int64_t steps;
    int64_t missed;
    int64_t waited_ns;

    /* [atomic] bytes of gradients that were copied, over all steps */
    _Atomic int64_t copied;
};

/* See dtrain_gradset_create and its like in dtrain.h. Collective. */
dtrain_status_t dt_gradset_create(dt_runtime_t *runtime, const dtrain_gradset_desc_t *desc,
                                  const dtrain_param_t *params, int n, dtrain_gradset_t **set);

/* Waits for what is in flight and frees the set; `has_world` 0: its world is no more, and has freed
 * the set's memory. */
dtrain_status_t dt_gradset_destroy(dtrain_gradset_t *set, int has_world);

/* The memory of a gradient. */
void *dt_gradset_buffer(const dtrain_gradset_t *set, int index);

/* Any thread. `brings` 0: zeros take the gradient's place unless another pass brings it. `stream`
 * for a gradient on a GPU. */
dtrain_status_t dt_gradset_mark(dtrain_gradset_t *set, int index, int brings, void *stream);

dtrain_status_t dt_gradset_wait(dtrain_gradset_t *set);
/* The same for a stream, without waiting for the GPU. */
dtrain_status_t dt_gradset_stream_wait(dtrain_gradset_t *set, void *stream);
dtrain_status_t dt_gradset_wait_one(dtrain_gradset_t *set, int index);
dtrain_status_t dt_gradset_set_accumulation(dtrain_gradset_t *set, int passes);
dtrain_status_t dt_gradset_enable_sync(dtrain_gradset_t *set, int on);
void dt_gradset_describe(const dtrain_gradset_t *set, dtrain_gradset_stats_t *stats);

/* ---- For the optimizer ------------------------------------------------------------------ */

/* OK, or INVALID_ARGUMENT in the middle of a step; `call` is for the text. */
dtrain_status_t dt_gradset_check_idle(const dtrain_gradset_t *set, const char *call);

/* What is not complete takes part with zeros; then every run is begun. On a GPU: for a wait in the
 * stream, `is_streamed`, or by the host. */
void dt_gradset_flush(dtrain_gradset_t *set, void *stream, int is_streamed);

/* Waits for one run, after the flush; or lets the stream wait. Its own status. */
dtrain_status_t dt_gradset_wait_run(dtrain_gradset_t *set, int run);

/* Ends a step all of whose runs were waited for: freezes the plan, makes ready for the next step.
 * `status` is what the step came to, and is returned, unless freezing fails. Collective. */
dtrain_status_t dt_gradset_end_step(dtrain_gradset_t *set, dtrain_status_t status);

/* Between steps: takes the order for the frozen plan, instead of what is to be observed.
 * Collective; the same on all ranks. Nothing when it is frozen. */
dtrain_status_t dt_gradset_adopt(dtrain_gradset_t *set, const int32_t *order);

/* As dt_gradset_wait, which besides catches up. */
dtrain_status_t dt_gradset_end(dtrain_gradset_t *set, void *stream, int is_streamed);

/* After a step, and all that follows from it, which came to `status`. Where the program had marked
 * the next step's gradients before it ended this one, they were refused, so the next step is ended
 * as well: with an error on all ranks, which then stand alike again. The first error. */
dtrain_status_t dt_gradset_catch_up(dtrain_gradset_t *set, dtrain_status_t status);

/* The part of a run that this rank, or rank `rank` of the set, has the reduced gradients of when it
 * is sharded: elements of the space. */
void dt_gradset_share(const dtrain_gradset_t *set, int run, int rank, int64_t *begin, int64_t *end);

/* 1 when the step that is under way reduces to shares. */
int dt_gradset_reduces_to_shares(const dtrain_gradset_t *set);

#endif
