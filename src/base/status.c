#include "base/status.h"

#include <string.h>

#include "base/text.h"

static _Thread_local char last_error[DT_ERROR_MAX];

const char *dt_status_string(dtrain_status_t status)
{
    switch (status) {
    case DTRAIN_OK:
        return "success";
    case DTRAIN_IN_PROGRESS:
        return "in progress";
    case DTRAIN_ERR_INVALID_ARGUMENT:
        return "invalid argument";
    case DTRAIN_ERR_NOT_INITIALIZED:
        return "not initialized";
    case DTRAIN_ERR_ALREADY_INITIALIZED:
        return "already initialized";
    case DTRAIN_ERR_DUPLICATE_NAME:
        return "name is in flight already";
    case DTRAIN_ERR_MISMATCH:
        return "ranks disagree about an operation";
    case DTRAIN_ERR_TIMEOUT:
        return "operation timed out";
    case DTRAIN_ERR_RANK_LOST:
        return "a rank was lost";
    case DTRAIN_ERR_SHUT_DOWN:
        return "a rank has shut down";
    case DTRAIN_ERR_INVALID_HANDLE:
        return "invalid handle";
    case DTRAIN_ERR_OUT_OF_MEMORY:
        return "out of memory";
    case DTRAIN_ERR_UNSUPPORTED:
        return "not supported";
    case DTRAIN_ERR_CONFIG:
        return "bad setting";
    case DTRAIN_ERR_COMMUNICATION:
        return "communication failed";
    case DTRAIN_ERR_INTERNAL:
        return "internal error of libdtrain";
    case DTRAIN_ERR_FORKED:
        return "called in a forked child";
    case DTRAIN_ERR_ABORTED:
        return "a rank aborted";
    case DTRAIN_ERR_IN_CALLBACK:
        return "would block in a callback";
    case DTRAIN_ERR_FILE:
        return "a file cannot be used";
    }
    return "unknown status";
}

dtrain_status_t dt_fail(dtrain_status_t status, const char *format, ...)
{
    /* Formatted aside, because an argument may be the last error itself. */
    char text[DT_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    size_t length = dt_text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_error, text, length + 1);
    return status;
}

const char *dt_last_error(void)
{
    return last_error;
}
