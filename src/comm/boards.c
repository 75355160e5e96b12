#include "comm/boards.h"

#include "base/memory.h"

void *dt_boards_get(const dt_boards_t *boards, int rank)
{
    return boards->at ? boards->at[rank] : NULL;
}

void dt_boards_free(dt_boards_t *boards)
{
    dt_free(boards->at);
    if (boards->release)
        boards->release(boards->memory);
    *boards = (dt_boards_t){0};
}
