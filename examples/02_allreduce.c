/*
 * 02_allreduce.c - every rank has some numbers, and all get their average.
 *
 *     mpirun -np 4 02_allreduce
 *
 * The blocking call does it in one line. The asynchronous one returns at once: the program goes on
 * computing, and waits when it needs the result.
 */
#include <stdio.h>

#include <dtrain/dtrain.h>

#define COUNT 1000

int main(void)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "%s\n", dtrain_last_error());
        return 1;
    }
    int rank = dtrain_rank(), size = dtrain_size();

    double mine = rank + 1;
    dtrain_status_t status =
        dtrain_allreduce("mine", &mine, &mine, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_AVERAGE);
    if (status == DTRAIN_OK && rank == 0)
        printf("the average of 1 to %d is %g\n", size, mine);

    static float gradient[COUNT];
    for (int i = 0; i < COUNT; i++)
        gradient[i] = (float)(i * (rank + 1));
    const int64_t shape[1] = {COUNT};
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = "gradient",
                              .in = gradient,
                              .out = gradient, /* in place */
                              .ndim = 1,
                              .shape = shape,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_SUM};
    dtrain_handle_t handle;
    if (status == DTRAIN_OK)
        status = dtrain_allreduce_async(&tensor, &options, &handle);
    if (status == DTRAIN_OK) {
        /* ... compute something else ... */
        status = dtrain_wait(handle);
        dtrain_release(handle);
    }
    if (status == DTRAIN_OK && rank == 0)
        printf("element 10 of the sum is %g\n", gradient[10]);

    if (status != DTRAIN_OK)
        fprintf(stderr, "rank %d: %s\n", rank, dtrain_last_error());
    dtrain_shutdown();
    return status != DTRAIN_OK;
}
