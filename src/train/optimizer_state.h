/*
 * optimizer_state.h - parameters and state of an optimizer: to other ranks, to a file and back.
 *
 * A save (optim/state_file.h) has, for each parameter NAME, the tensors "param/NAME", "state0/NAME"
 * and so on as many as the rule has, and "master/NAME" where the model has rounded parameters; and
 * "optimizer/numbers" and "optimizer/order", with what is not by element. Ranges of tensors are cut
 * as runs and shares cut them, which a reader need not know: so a save can be loaded at any number
 * of ranks, sharded or not, whichever way it was made.
 */
#ifndef DT_TRAIN_OPTIMIZER_STATE_H
#define DT_TRAIN_OPTIMIZER_STATE_H

#include "train/optimizer.h"

/* See dtrain_optimizer_broadcast, _save and _load in dtrain.h. Collective. */
dtrain_status_t dt_optimizer_broadcast(dtrain_optimizer_t *optimizer, int root);
dtrain_status_t dt_optimizer_save(dtrain_optimizer_t *optimizer, const char *path, int in_shards);
dtrain_status_t dt_optimizer_load(dtrain_optimizer_t *optimizer, const char *path, int root);

#endif
