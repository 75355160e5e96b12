/* consumer.c - a program outside the project, C and C++ alike: a world of one that works. */
#include <dtrain/dtrain.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "consumer: %s: %s\n", what, dtrain_last_error());
    return 1;
}

static int check_async(void)
{
    const int64_t shape[2] = {2, 2};
    float values[4] = {1, 2, 3, 4};
    dtrain_tensor_t tensor;
    dtrain_options_t options;
    dtrain_handle_t handle = 0;

    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    tensor.name = "consumer.async";
    tensor.in = values;
    tensor.out = values;
    tensor.ndim = 2;
    tensor.shape = shape;
    tensor.dtype = DTRAIN_DTYPE_F32;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.op = DTRAIN_OP_SUM;
    options.postscale = 0.5;
    if (dtrain_allreduce_async(&tensor, &options, &handle) != DTRAIN_OK)
        return fail("dtrain_allreduce_async");
    if (dtrain_wait(handle) != DTRAIN_OK)
        return fail("dtrain_wait");
    if (dtrain_release(handle) != DTRAIN_OK)
        return fail("dtrain_release");
    if (values[0] != 0.5f || values[3] != 2.0f)
        return fail("wrong sum");
    return 0;
}

int main(void)
{
    double gradient[3] = {1, -2, 4};

    if (dtrain_version() != DTRAIN_VERSION ||
        strcmp(dtrain_version_string(), DTRAIN_VERSION_STRING) != 0)
        return fail("header and library are of different versions");
    if (dtrain_init(NULL) != DTRAIN_OK)
        return fail("dtrain_init");
    if (dtrain_rank() != 0 || dtrain_size() != 1)
        return fail("not a world of one");
    if (dtrain_allreduce("consumer", gradient, gradient, 3, DTRAIN_DTYPE_F64, DTRAIN_OP_AVERAGE) !=
        DTRAIN_OK)
        return fail("dtrain_allreduce");
    if (gradient[0] != 1 || gradient[1] != -2 || gradient[2] != 4)
        return fail("wrong average");
    if (check_async() != 0)
        return 1;
    if (dtrain_shutdown() != DTRAIN_OK)
        return fail("dtrain_shutdown");
    printf("consumer: libdtrain %s works\n", dtrain_version_string());
    return 0;
}
