/* Trainings through the public API, under mpirun: a thousand steps end with the same bits on all
 * ranks, in one bucket or many, sharded or not; saves; what is refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define PARAMS 4
#define TOTAL (700 + 7 + 9000 + 33)

static const int64_t counts[PARAMS] = {700, 7, 9000, 33};
static const char *const names[PARAMS] = {"a", "b", "c", "d"};
static int rank, size;

typedef struct way {
    int sharded;
    int64_t bucket_bytes;
    int rule;
    double max_norm;
} way_t;

typedef struct training {
    dtrain_gradset_t *set;
    dtrain_optimizer_t *optimizer;
    float *values[PARAMS], *gradients[PARAMS];
} training_t;

static int begin(training_t *training, const way_t *way)
{
    dtrain_param_t params[PARAMS];
    dtrain_gradset_desc_t set = {.struct_size = sizeof set,
                                 .op = DTRAIN_OP_AVERAGE,
                                 .first_bucket_bytes = way->bucket_bytes,
                                 .bucket_bytes = way->bucket_bytes};
    dtrain_optimizer_desc_t optimizer = {.struct_size = sizeof optimizer,
                                         .rule = way->rule,
                                         .momentum = 0.9,
                                         .weight_decay = 1e-3,
                                         .max_norm = way->max_norm,
                                         .sharded = way->sharded};
    for (int i = 0; i < PARAMS; i++)
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &counts[i],
                                     .dtype = DTRAIN_DTYPE_F32};
    if (!CHECK_OK(dtrain_gradset_create(&set, params, PARAMS, &training->set)) ||
        !CHECK_OK(dtrain_optimizer_create(training->set, &optimizer, &training->optimizer)))
        return -1;
    for (int i = 0; i < PARAMS; i++) {
        CHECK_OK(dtrain_optimizer_param(training->optimizer, i, (void **)&training->values[i]));
        CHECK_OK(dtrain_gradset_buffer(training->set, i, (void **)&training->gradients[i]));
        for (int64_t e = 0; e < counts[i] && rank == 0; e++)
            training->values[i][e] = (float)((e * 7919 + i) % 1000) / 500 - 1;
    }
    CHECK_OK(dtrain_optimizer_broadcast(training->optimizer, 0));
    return 0;
}

static void end(training_t *training)
{
    CHECK_STATUS(dtrain_gradset_destroy(training->set), DTRAIN_ERR_INVALID_ARGUMENT);
    dtrain_optimizer_destroy(training->optimizer);
    CHECK_OK(dtrain_gradset_destroy(training->set));
}

/* Each rank pulls towards a point of its own, with noise. */
static void step(training_t *training, int number)
{
    for (int i = PARAMS - 1; i >= 0; i--) {
        uint32_t random = (uint32_t)(number * 31 + i) * 2654435761u + (uint32_t)rank;
        for (int64_t e = 0; e < counts[i]; e++) {
            random = random * 1664525u + 1013904223u;
            float noise = (float)(random >> 8) / 16777216.0f - 0.5f;
            training->gradients[i][e] = training->values[i][e] - (float)rank + noise;
        }
        CHECK_OK(dtrain_gradset_ready(training->set, i, NULL));
    }
    CHECK_OK(dtrain_optimizer_step(training->optimizer, 1e-2, NULL));
}

static void copy_values(const training_t *training, float *to)
{
    for (int i = 0; i < PARAMS; i++) {
        memcpy(to, training->values[i], (size_t)counts[i] * sizeof *to);
        to += counts[i];
    }
}

static void train(const way_t *way, int steps, float *values)
{
    training_t training = {0};
    if (begin(&training, way))
        return;
    for (int i = 0; i < steps; i++)
        step(&training, i);
    copy_values(&training, values);
    end(&training);
}

/* Bit for bit, TOTAL values each. */
static int are_same(const void *one, const void *other)
{
    return memcmp(one, other, TOTAL * sizeof(float)) == 0;
}

/* All ranks have rank 0's. */
static void check_same(const char *name, const float *values)
{
    static float first[TOTAL];
    memcpy(first, values, sizeof first);
    CHECK_OK(dtrain_broadcast(name, first, TOTAL, DTRAIN_DTYPE_F32, 0));
    CHECK(are_same(first, values));
}

static void compare_ways(int rule, double max_norm, int steps)
{
    static float values[4][TOTAL];
    for (int i = 0; i < 4; i++) {
        const way_t way = {.sharded = i % 2,
                           .bucket_bytes = i < 2 ? 1 << 22 : 1,
                           .rule = rule,
                           .max_norm = max_norm};
        train(&way, steps, values[i]);
        CHECK(are_same(values[i], values[0]));
    }
    check_same("values", values[0]);
    CHECK(values[0][0] != -1 && values[0][TOTAL - 1] == values[0][TOTAL - 1]);
}

/* Every rank sees /tmp: these worlds are of one node. */
static void save_and_load(int in_shards)
{
    static float whole[TOTAL], later[TOTAL];
    const way_t way = {.sharded = 1, .bucket_bytes = 1 << 14, .rule = DTRAIN_RULE_ADAM};
    const way_t other = {.bucket_bytes = 1 << 22, .rule = DTRAIN_RULE_ADAM};
    training_t training = {0};
    int64_t id = getpid();
    char path[64];
    CHECK_OK(dtrain_broadcast("id", &id, 1, DTRAIN_DTYPE_I64, 0));
    snprintf(path, sizeof path, "/tmp/dtrain_test_training.%d.save", (int)id);
    train(&way, 10, whole);
    if (begin(&training, &way))
        return;
    for (int i = 0; i < 5; i++)
        step(&training, i);
    CHECK_OK(dtrain_optimizer_save(training.optimizer, path, in_shards));
    end(&training);
    if (begin(&training, &other))
        return;
    CHECK_OK(dtrain_optimizer_load(training.optimizer, path, in_shards ? -1 : size - 1));
    for (int i = 5; i < 10; i++)
        step(&training, i);
    copy_values(&training, later);
    CHECK(are_same(whole, later));
    end(&training);
    if (rank == 0) {
        char command[128];
        snprintf(command, sizeof command, "rm -f '%s'*", path);
        CHECK(system(command) == 0);
    }
}

static void broadcast_params(void)
{
    float a[3] = {(float)rank, 1, 2}, b = (float)(rank + 5);
    const int64_t three[1] = {3};
    dtrain_param_t params[2] = {
        {.struct_size = sizeof params[0],
         .name = "a",
         .ndim = 1,
         .shape = three,
         .dtype = DTRAIN_DTYPE_F32,
         .data = a},
        {.struct_size = sizeof params[1], .name = "b", .dtype = DTRAIN_DTYPE_F32, .data = &b}};
    CHECK_OK(dtrain_broadcast_params(params, 2, size - 1));
    CHECK(a[0] == (float)(size - 1) && b == (float)(size + 4));
    CHECK_OK(dtrain_broadcast_params(NULL, 0, 0));
    CHECK_STATUS(dtrain_broadcast_params(NULL, 1, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_broadcast_params(params, 2, size), DTRAIN_ERR_INVALID_ARGUMENT);
    if (rank == size - 1)
        params[1].name = "";
    dtrain_status_t status = dtrain_broadcast_params(params, 1 + (rank == size - 1), 0);
    CHECK(status == (rank == size - 1 ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK));
}

static void arguments(void)
{
    const way_t way = {.bucket_bytes = 1 << 14, .rule = DTRAIN_RULE_SGD};
    training_t training = {0};
    void *values;
    dtrain_step_info_t info = {.struct_size = 4};
    dtrain_optimizer_stats_t stats = {.struct_size = 4};
    CHECK_STATUS(dtrain_optimizer_step(NULL, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_optimizer_create(NULL, NULL, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    dtrain_optimizer_destroy(NULL);
    if (begin(&training, &way))
        return;
    CHECK_STATUS(dtrain_optimizer_param(training.optimizer, PARAMS, &values),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_optimizer_param(training.optimizer, 0, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_optimizer_step(training.optimizer, 1, &info), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_optimizer_get_stats(training.optimizer, &stats),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    step(&training, 0);
    stats.struct_size = sizeof stats;
    CHECK_OK(dtrain_optimizer_get_stats(training.optimizer, &stats));
    CHECK(stats.state_bytes >= TOTAL * 4 && stats.updated_ns > 0);
    end(&training);
}

int main(void)
{
    check_begin("test_training", 110);
    training_t training = {0};
    const way_t way = {.sharded = 1, .bucket_bytes = 1 << 14, .rule = DTRAIN_RULE_ADAM};
    if (!CHECK_OK(check_init(0)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    compare_ways(DTRAIN_RULE_SGD, 0, 1000);
    compare_ways(DTRAIN_RULE_ADAMW, 0.5, 50);
    save_and_load(0);
    save_and_load(1);
    broadcast_params();
    arguments();
    if (!begin(&training, &way))
        step(&training, 0);
    CHECK_OK(dtrain_shutdown());
    CHECK_STATUS(dtrain_optimizer_step(training.optimizer, 1, NULL), DTRAIN_ERR_NOT_INITIALIZED);
    dtrain_optimizer_destroy(training.optimizer);
    CHECK_OK(dtrain_gradset_destroy(training.set));
    return check_end();
}
