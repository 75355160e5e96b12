/*
 * optimizer.h - the update of parameters from a gradient set, by one rank for all or by each rank
 * for its share.
 *
 * Of each run (grad_plan.h) an optimizer has a part: the whole run, or, sharded, the blocks that
 * the reduce-scatter gives this rank. State exists for parts alone. A step goes through the runs in
 * their order: wait for the run's gradients, update the part, and, sharded, submit the allgather of
 * the run's parameters, so that a run is gathered while the next one is updated and the ones behind
 * are still being reduced. Where the global norm is asked for, all gradients have to be there
 * first.
 *
 * On a GPU (optimizer_device.h) updates go into a stream, and the host waits for none of them.
 *
 * An element's new value depends on its own values alone (update.h), the norm on blocks alone
 * (norm.h): so both ways give the same bits.
 */
#ifndef DT_TRAIN_OPTIMIZER_H
#define DT_TRAIN_OPTIMIZER_H

#include "optim/update.h"
#include "train/gradset.h"

#define DT_OPTIMIZER_STATES_MAX 4

/* A run's part, and its state: arrays of its elements behind each other in `state`. */
typedef struct dt_optimizer_part {
    int64_t begin, end;   /* elements of the space */
    dtrain_dtype_t dtype; /* of the state, and of what is updated */
    uint8_t *state[DT_OPTIMIZER_STATES_MAX];
    float *master;   /* the parameters themselves, where the model has them rounded; or NULL */
    uint8_t *memory; /* of a part by itself (optimizer_file.c): owned; else NULL */
    char *name;      /* of the operation that gathers the run */
    dtrain_handle_t gather; /* on its way; else 0 */
} dt_optimizer_part_t;

struct dtrain_optimizer {
    dtrain_gradset_t *set;         /* [const] lives longer */
    dtrain_optimizer_desc_t desc;  /* [const] */
    dt_update_settings_t settings; /* of the library's rules */
    int num_states;                /* [const] */
    int is_sharded;                /* [const] parameters are gathered */
    void **data;                   /* [const] where parameters lie */
    uint8_t *memory;               /* [const] the library's, in the layout; or NULL */
    int is_packed;                 /* [const] some lie in the caller's memory */
    dt_optimizer_part_t *parts;    /* one a run of the frozen plan; NULL before */
    int num_parts;
    void *arena;       /* all state; on the set's device */
    dt_mark_t *behind; /* on a GPU: all that the last step has put into its stream; or NULL */
    int64_t state_bytes, updated_ns, gathered_ns, copied; /* statistics */
    int64_t step;                                         /* that changed the parameters */
    int64_t seen;                                         /* steps of the set that were taken */
    double loss_scale;                                    /* 1: none */
    int64_t num_good;                                     /* steps since it last changed */
};

/* See dtrain_optimizer_create and its like in dtrain.h. Collective. */
dtrain_status_t dt_optimizer_create(dtrain_gradset_t *set, const dtrain_optimizer_desc_t *desc,
                                    dtrain_optimizer_t **optimizer);

/* `has_world` as in dt_gradset_destroy. */
void dt_optimizer_destroy(dtrain_optimizer_t *optimizer, int has_world);

dtrain_status_t dt_optimizer_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                  dtrain_step_info_t *info);
/* The same in a stream, without waiting for the GPU. */
dtrain_status_t dt_optimizer_stream_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                         void *stream, dtrain_step_info_t *info);

/* Makes the parts and their state, zeros, once the set's plan is frozen. Collective. OUT_OF_MEMORY,
 * and then there are none on any rank. */
dtrain_status_t dt_optimizer_make_parts(dtrain_optimizer_t *optimizer);

/* The bytes of a part's state and, `has_master`, parameters; with `memory`, deals it out. */
size_t dt_optimizer_deal_out(const dtrain_optimizer_t *optimizer, dt_optimizer_part_t *part,
                             int has_master, uint8_t *memory);

/* Takes the masters from the rounded parameters. OK unless they are on a GPU. */
dtrain_status_t dt_optimizer_take_masters(dtrain_optimizer_t *optimizer);

/* 1 when steps need the global norm. */
int dt_optimizer_needs_norm(const dtrain_optimizer_t *optimizer);

/* Frees the optimizer, and leaves the set alone. */
void dt_optimizer_free(dtrain_optimizer_t *optimizer, int has_world);

#endif
