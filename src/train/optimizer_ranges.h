/*
 * optimizer_ranges.h - what a save of an optimizer consists of: ranges of tensors, as
 * optimizer_state.h names them, with where their bytes are.
 */
#ifndef DT_TRAIN_OPTIMIZER_RANGES_H
#define DT_TRAIN_OPTIMIZER_RANGES_H

#include "optim/state_file.h"
#include "train/optimizer.h"

/* What is not by element, as a tensor of doubles; all are whole numbers or powers of two. */
enum {
    DT_NUMBER_FORM,
    DT_NUMBER_RULE,
    DT_NUMBER_STATES,
    DT_NUMBER_SCALE,
    DT_NUMBER_GOOD,
    DT_NUMBERS
};
#define DT_SAVE_FORM 1
#define DT_NAME_NUMBERS "optimizer/numbers"
#define DT_NAME_ORDER "optimizer/order"

/* Ranges of tensors for a file, and the names they have there. */
typedef struct dt_ranges {
    dt_state_tensor_t *tensors;
    char **names;  /* as many; owned */
    void **places; /* as many: on a GPU, where `data` is a copy of the host's, owned; or NULL */
    int count, capacity;
    int failed; /* memory ran out */
} dt_ranges_t;

void dt_ranges_free(dt_ranges_t *list);

/* Adds a part of a parameter's values, or of what there is for each of them; `is_there`: it is on
 * the GPU, and gets a copy in host memory, which is not filled yet. */
void dt_ranges_add_segment(dt_ranges_t *list, const char *kind, const dt_grad_slice_t *slice,
                           const dt_grad_segment_t *segment, dtrain_dtype_t dtype, void *data,
                           int is_there);

/* Adds parameters (`with_params`) and state of [begin, end) of a run. `part` says where its state
 * is, for elements from part->begin on. */
void dt_ranges_add_run(dt_ranges_t *list, const dtrain_optimizer_t *optimizer,
                       const dt_optimizer_part_t *part, int64_t begin, int64_t end,
                       int with_params);

/* Adds parameters without elements, which are in no run, and yet in the file. */
void dt_ranges_add_empty(dt_ranges_t *list, const dtrain_optimizer_t *optimizer);

/* Fills the copies of what is on a GPU, or writes them back. */
dtrain_status_t dt_ranges_move(const dtrain_optimizer_t *optimizer, dt_ranges_t *list, int is_back);

/* What one file holds beside ranges. */
typedef struct dt_extras {
    double numbers[DT_NUMBERS];
    int64_t numbers_shape, order_shape;
    int32_t *order;
} dt_extras_t;

dt_extras_t dt_extras_of(const dtrain_optimizer_t *optimizer);

/* Adds them; they have to live as long as the list. */
void dt_ranges_add_extras(dt_ranges_t *list, dt_extras_t *extras);

#endif
