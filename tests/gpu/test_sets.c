/*
 * test_sets.c [IDS] - process sets with tensors on GPUs, added before and after the world has had
 * one, used and removed in any order. Where the test is told of IDS, NCCL gives no further id once
 * the world has a communicator: sets then have to come out of that one.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "device.h"

#define COUNT 1000
#define RANKS_MAX 16

static int rank, size;

/* A sum over the set's ranks, each of which brings its number in the world, and one more. */
static void check_sum(dtrain_pset_t pset, const int *ranks, int n, const char *name)
{
    float values[COUNT], wanted = 0;
    int64_t count = COUNT;
    dtrain_handle_t handle = 0;
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(rank + 1);
    for (int i = 0; i < n; i++)
        wanted += (float)(ranks[i] + 1);
    float *memory = device_copy_of(values, sizeof values);
    dtrain_tensor_t tensor = device_tensor(name, memory, memory, &count, DTRAIN_DTYPE_F32);
    if (CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle)))
        CHECK_OK(check_finish(handle));
    device_read(values, memory, sizeof values);
    CHECK(values[0] == wanted && values[COUNT - 1] == wanted);
    CHECK_OK(dtrain_mem_free(memory));
}

typedef struct set {
    dtrain_pset_t id;
    int ranks[RANKS_MAX];
    int n, is_member;
} set_t;

/* The world's ranks from `first` on, each `step`-th, the last one first. */
static set_t add_set(int first, int step)
{
    set_t set = {.n = 0};
    for (int r = size - 1; r >= first; r--) {
        if ((r - first) % step == 0) {
            set.is_member |= r == rank;
            set.ranks[set.n++] = r;
        }
    }
    CHECK_OK(dtrain_pset_add(set.ranks, set.n, &set.id));
    return set;
}

static void use_set(const set_t *set, const char *name)
{
    if (set->is_member)
        check_sum(set->id, set->ranks, set->n, name);
}

static void use_world(const char *name)
{
    int all[RANKS_MAX];
    for (int r = 0; r < size; r++)
        all[r] = r;
    check_sum(DTRAIN_PSET_WORLD, all, size, name);
}

static void test_sets_before_the_world_has_a_tensor(void)
{
    set_t even = add_set(0, 2), last = add_set(size - 1, 1);
    use_set(&even, "early");
    use_set(&last, "early");
    CHECK_OK(dtrain_pset_remove(even.id));
    use_set(&last, "again");
    CHECK_OK(dtrain_pset_remove(last.id));
}

static void test_sets_out_of_the_world(void)
{
    set_t all = add_set(0, 1), even = add_set(0, 2), odd = add_set(size > 1, 2);
    set_t unused = add_set(0, 1);
    use_world("between");
    use_set(&odd, "odd");
    use_set(&even, "even");
    use_set(&all, "all");
    CHECK_OK(dtrain_pset_remove(even.id));
    use_set(&odd, "odd");
    use_set(&all, "all");
    use_world("behind");
    CHECK_OK(dtrain_pset_remove(unused.id));
    CHECK_OK(dtrain_pset_remove(all.id));
    set_t another = add_set(size - 1, 1);
    use_set(&another, "another");
    use_set(&odd, "odd");
    CHECK_OK(dtrain_pset_remove(odd.id));
}

/* The set is added while operations of the world are on their way, and left for the shutdown. */
static void test_set_beside_operations(void)
{
    float *memory = device_new(COUNT * sizeof *memory);
    int64_t count = COUNT;
    dtrain_handle_t handles[8];
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "busy%d", i);
        dtrain_tensor_t tensor = device_tensor(name, memory, memory, &count, DTRAIN_DTYPE_F32);
        CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handles[i]));
    }
    set_t set = add_set(0, 1);
    use_set(&set, "beside");
    for (int i = 0; i < 8; i++)
        CHECK_OK(check_finish(handles[i]));
    CHECK_OK(dtrain_mem_free(memory));
}

int main(int argc, char **argv)
{
    int is_by_ids = argc == 2 && strcmp(argv[1], "IDS") == 0;
    check_begin("sets", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    if (!is_by_ids)
        test_sets_before_the_world_has_a_tensor();
    use_world("world");
    test_sets_out_of_the_world();
    test_set_beside_operations();
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
