/*
 * fusion_plan.h - which of the agreed operations travel together: a pure function of the agreed
 * list and of settings that are the same on all ranks, so that every rank finds the same plan
 * without asking. It does not change the bits of any result.
 */
#ifndef DT_CORE_FUSION_PLAN_H
#define DT_CORE_FUSION_PLAN_H

#include "core/signature.h"

typedef struct dt_plan_policy {
    int64_t threshold;    /* bytes a bucket holds at most; 0: nothing is fused */
    int64_t tensor_limit; /* larger tensors, in bytes, travel alone */
} dt_plan_policy_t;

/* One agreed operation. */
typedef struct dt_plan_item {
    const dt_signature_t *signature;
    int64_t bytes;
    int divisor; /* of an average */
} dt_plan_item_t;

/*
 * Puts items[0 … n-1] into buckets: bucket_of[i] is the bucket of item i. Buckets are numbered in
 * the order of their first items, and start in that order; a bucket's items keep the order of the
 * list. Only allreduces of the same type, reduction, scales, codec and divisor share a bucket.
 * Returns the number of buckets.
 */
int dt_fusion_plan(const dt_plan_item_t *items, int n, const dt_plan_policy_t *policy,
                   int32_t *bucket_of);

#endif
