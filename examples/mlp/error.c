#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int mlp_fail(mlp_error_t *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->same_everywhere = 0;
    return -1;
}
