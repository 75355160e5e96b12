#include "core/fusion_plan.h"

#include <string.h>

/* Buckets of different types that are being filled at the same time. */
#define OPEN_MAX 16

typedef struct open_bucket {
    const dt_plan_item_t *first;
    int64_t bytes;
    int32_t number;
} open_bucket_t;

static int may_share(const dt_plan_item_t *one, const dt_plan_item_t *other)
{
    const dt_signature_t *a = one->signature, *b = other->signature;
    return one->divisor == other->divisor && a->dtype == b->dtype && a->op == b->op &&
           a->prescale == b->prescale && a->postscale == b->postscale && a->pset == b->pset &&
           a->device == b->device && memcmp(a->codec, b->codec, sizeof a->codec) == 0;
}

/* A GPU copies fast, and a collective costs it more than a CPU. */
#define DEVICE_TENSOR_LIMIT ((int64_t)4 << 20)

static int may_be_fused(const dt_plan_item_t *item, const dt_plan_policy_t *policy)
{
    int64_t limit =
        item->signature->device == DTRAIN_DEVICE_CPU ? policy->tensor_limit : DEVICE_TENSOR_LIMIT;
    return item->signature->kind == DT_KIND_ALLREDUCE && item->signature->op != DTRAIN_OP_ADASUM &&
           item->bytes <= limit && item->bytes <= policy->threshold;
}

static open_bucket_t *find_open(open_bucket_t *open, int count, const dt_plan_item_t *item)
{
    for (int i = 0; i < count; i++) {
        if (may_share(open[i].first, item))
            return &open[i];
    }
    return NULL;
}

int dt_fusion_plan(const dt_plan_item_t *items, int n, const dt_plan_policy_t *policy,
                   int32_t *bucket_of)
{
    open_bucket_t open[OPEN_MAX];
    int num_open = 0, num_buckets = 0;
    for (int i = 0; i < n; i++) {
        if (!may_be_fused(&items[i], policy)) {
            bucket_of[i] = num_buckets++;
            continue;
        }
        open_bucket_t *bucket = find_open(open, num_open, &items[i]);
        if (!bucket) {
            /* Past OPEN_MAX kinds at once the oldest place is taken over. */
            bucket = &open[num_open < OPEN_MAX ? num_open++ : num_buckets % OPEN_MAX];
            bucket->first = NULL;
        }
        if (!bucket->first || bucket->bytes + items[i].bytes > policy->threshold) {
            bucket->first = &items[i];
            bucket->bytes = 0;
            bucket->number = num_buckets++;
        }
        bucket->bytes += items[i].bytes;
        bucket_of[i] = bucket->number;
    }
    return num_buckets;
}
