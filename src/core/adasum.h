/*
 * adasum.h - an allreduce by adasum. Each rank is given its share of the elements of all ranks'
 * tensors; the tree of pairs is then gone through level by level, each rank computing its share's
 * part of the dot products, which one small allreduce a level adds up; in the end the ranks collect
 * the shares. So as much data moves as in an allreduce, the work is shared out, and a rank needs
 * memory for about one tensor of its type and one in double.
 */
#ifndef DT_CORE_ADASUM_H
#define DT_CORE_ADASUM_H

#include "core/collective.h"
#include "core/staged.h"

/* `operation` is borrowed. NULL when memory ran out. */
dt_staged_t *dt_adasum_create(const dt_operation_t *operation, dt_ranks_t ranks);

#endif
