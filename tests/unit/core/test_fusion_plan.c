#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/fusion_plan.h"
#include "test_random.h"

#define ITEMS_MAX 200

/* A list of operations in the making. */
typedef struct list {
    int n;
    dt_signature_t signatures[ITEMS_MAX];
    dt_plan_item_t items[ITEMS_MAX];
} list_t;

static dt_signature_t *add(list_t *list, int64_t bytes)
{
    dt_signature_t *signature = &list->signatures[list->n];
    *signature = (dt_signature_t){
        .kind = DT_KIND_ALLREDUCE, .dtype = DTRAIN_DTYPE_F32, .prescale = 1, .postscale = 1};
    list->items[list->n++] = (dt_plan_item_t){.signature = signature, .bytes = bytes};
    return signature;
}

static void assert_plan(const list_t *list, int64_t threshold, int64_t limit, int num_buckets,
                        const int32_t *buckets)
{
    dt_plan_policy_t policy = {.threshold = threshold, .tensor_limit = limit};
    int32_t bucket_of[ITEMS_MAX];
    assert_int_equal(dt_fusion_plan(list->items, list->n, &policy, bucket_of), num_buckets);
    for (int i = 0; i < list->n; i++)
        assert_int_equal(bucket_of[i], buckets[i]);
}

/* ---- By example
 * ---------------------------------------------------------------------------------- */

static void test_fusion_plan_of_nothing_is_empty(void **state)
{
    (void)state;
    list_t list = {0};
    assert_plan(&list, 1000, 1000, 0, NULL);
}

static void test_fusion_plan_fills_buckets_up_to_the_threshold(void **state)
{
    (void)state;
    list_t list = {0};
    for (int i = 0; i < 7; i++)
        add(&list, 300);
    assert_plan(&list, 900, 900, 3, (int32_t[]){0, 0, 0, 1, 1, 1, 2});
    assert_plan(&list, 899, 899, 4, (int32_t[]){0, 0, 1, 1, 2, 2, 3});
}

static void test_fusion_plan_threshold_zero_fuses_nothing(void **state)
{
    (void)state;
    list_t list = {0};
    for (int i = 0; i < 3; i++)
        add(&list, 4);
    assert_plan(&list, 0, 1000, 3, (int32_t[]){0, 1, 2});
}

static void test_fusion_plan_large_tensors_travel_alone(void **state)
{
    (void)state;
    list_t list = {0};
    add(&list, 100);
    add(&list, 501); /* above the limit of a tensor */
    add(&list, 100);
    add(&list, 500);
    add(&list, 2000); /* above the threshold */
    add(&list, 100);
    assert_plan(&list, 1000, 500, 3, (int32_t[]){0, 1, 0, 0, 2, 0});
}

static void test_fusion_plan_keeps_kinds_of_arithmetic_apart(void **state)
{
    (void)state;
    list_t list = {0};
    add(&list, 4);
    add(&list, 4)->dtype = DTRAIN_DTYPE_F16;
    add(&list, 4)->op = DTRAIN_OP_MAX;
    add(&list, 4)->prescale = 2;
    add(&list, 4)->postscale = 2;
    add(&list, 4)->pset = 1;
    add(&list, 4)->device = 1;
    add(&list, 4)->dtype = DTRAIN_DTYPE_F16;
    add(&list, 4);
    assert_plan(&list, 1000, 1000, 7, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 1, 0});
}

static void test_fusion_plan_shapes_may_differ(void **state)
{
    (void)state;
    list_t list = {0};
    add(&list, 4)->ndim = 0;
    dt_signature_t *matrix = add(&list, 24);
    matrix->ndim = 2;
    matrix->shape[0] = 2;
    matrix->shape[1] = 3;
    assert_plan(&list, 1000, 1000, 1, (int32_t[]){0, 0});
}

static void test_fusion_plan_broadcasts_travel_alone(void **state)
{
    (void)state;
    list_t list = {0};
    add(&list, 4)->kind = DT_KIND_BROADCAST;
    add(&list, 4)->kind = DT_KIND_BROADCAST;
    add(&list, 4);
    add(&list, 4);
    assert_plan(&list, 1000, 1000, 3, (int32_t[]){0, 1, 2, 2});
}

static void test_fusion_plan_empty_tensors_join_a_bucket(void **state)
{
    (void)state;
    list_t list = {0};
    add(&list, 0);
    add(&list, 1000);
    add(&list, 0);
    assert_plan(&list, 1000, 1000, 1, (int32_t[]){0, 0, 0});
}

/* ---- For any list
 * ---------------------------------------------------------------------------------- */

static void make_random(list_t *list, uint64_t *random)
{
    list->n = 0;
    int n = (int)(test_random(random) % (ITEMS_MAX + 1));
    int types = 1 + (int)(test_random(random) % 40); /* more than are filled at once, too */
    while (list->n < n) {
        dt_signature_t *signature = add(list, (int64_t)(test_random(random) % 2000));
        int type = (int)(test_random(random) % (uint64_t)types);
        signature->prescale = 1 + type;
        if (test_random(random) % 10 == 0)
            signature->kind = DT_KIND_BROADCAST;
    }
}

/* What a bucket has come to; the first item says what may be in it. */
typedef struct bucket {
    int first, count;
    int64_t bytes;
} bucket_t;

static void check_item(const list_t *list, int i, const dt_plan_policy_t *policy, bucket_t *bucket)
{
    const dt_signature_t *signature = list->items[i].signature;
    int64_t bytes = list->items[i].bytes;
    if (bucket->count++ == 0) {
        bucket->first = i;
        bucket->bytes = bytes;
        return;
    }
    const dt_signature_t *first = list->items[bucket->first].signature;
    assert_int_equal(signature->kind, DT_KIND_ALLREDUCE);
    assert_int_equal(first->kind, DT_KIND_ALLREDUCE);
    assert_true(signature->prescale == first->prescale);
    bucket->bytes += bytes;
    assert_true(bucket->bytes <= policy->threshold);
    assert_true(bytes <= policy->tensor_limit);
    assert_true(list->items[bucket->first].bytes <= policy->tensor_limit);
}

static void test_fusion_plan_of_any_list_keeps_its_rules(void **state)
{
    (void)state;
    static list_t list, copy;
    uint64_t random = 2024;
    for (int round = 0; round < 2000; round++) {
        make_random(&list, &random);
        dt_plan_policy_t policy = {.threshold = (int64_t)(test_random(&random) % 8000),
                                   .tensor_limit = (int64_t)(test_random(&random) % 3000)};
        int32_t bucket_of[ITEMS_MAX], again[ITEMS_MAX];
        bucket_t buckets[ITEMS_MAX] = {{0}};
        int num = dt_fusion_plan(list.items, list.n, &policy, bucket_of);
        int seen = 0;
        for (int i = 0; i < list.n; i++) {
            /* Numbered in the order of their first items, without gaps. */
            assert_in_range(bucket_of[i], 0, seen);
            seen += bucket_of[i] == seen;
            check_item(&list, i, &policy, &buckets[bucket_of[i]]);
        }
        assert_int_equal(seen, num);
        /* The same list elsewhere in memory gives the same plan. */
        copy = list;
        for (int i = 0; i < copy.n; i++)
            copy.items[i].signature = &copy.signatures[i];
        assert_int_equal(dt_fusion_plan(copy.items, copy.n, &policy, again), num);
        assert_memory_equal(again, bucket_of, (size_t)list.n * sizeof again[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fusion_plan_of_nothing_is_empty),
        cmocka_unit_test(test_fusion_plan_fills_buckets_up_to_the_threshold),
        cmocka_unit_test(test_fusion_plan_threshold_zero_fuses_nothing),
        cmocka_unit_test(test_fusion_plan_large_tensors_travel_alone),
        cmocka_unit_test(test_fusion_plan_keeps_kinds_of_arithmetic_apart),
        cmocka_unit_test(test_fusion_plan_shapes_may_differ),
        cmocka_unit_test(test_fusion_plan_broadcasts_travel_alone),
        cmocka_unit_test(test_fusion_plan_empty_tensors_join_a_bucket),
        cmocka_unit_test(test_fusion_plan_of_any_list_keeps_its_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
