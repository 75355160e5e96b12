#include "agree.h"

#include <dtrain/dtrain.h>

int agree_library_error(mlp_error_t *error)
{
    return mlp_fail(error, "rank %d: %s", dtrain_rank(), dtrain_last_error());
}

int agree_on_success(int status, mlp_error_t *error)
{
    int32_t culprit = status == 0 ? INT32_MAX : dtrain_rank();
    if (dtrain_allreduce("mlp.culprit", &culprit, &culprit, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_MIN) !=
        DTRAIN_OK)
        return agree_library_error(error);
    if (culprit == INT32_MAX)
        return 0;

    mlp_error_t told = {.text = ""};
    if (culprit == dtrain_rank()) {
        if (dtrain_size() == 1)
            told = *error;
        else
            mlp_fail(&told, "rank %d: %s", culprit, error->text);
    }
    if (dtrain_broadcast("mlp.error", told.text, sizeof told.text, DTRAIN_DTYPE_U8, culprit) !=
        DTRAIN_OK)
        return agree_library_error(error);
    *error = told;
    error->same_everywhere = 1;
    return -1;
}

int agree_on_number(uint64_t number, const char *what, mlp_error_t *error)
{
    uint64_t first = number;
    if (dtrain_broadcast("mlp.number", &first, 1, DTRAIN_DTYPE_I64, 0) != DTRAIN_OK)
        return agree_library_error(error);
    int status = 0;
    if (number != first)
        status = mlp_fail(error, "%s differ from rank 0's", what);
    return agree_on_success(status, error);
}
