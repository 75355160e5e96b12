/*
 * pset_key.h - how names are kept apart by process set. A name of the world is its own key; in
 * another set the key is "dtrain.set.ID/name", which no name of the world can be, since those that
 * start with "dtrain." are reserved.
 */
#ifndef DT_CORE_PSET_KEY_H
#define DT_CORE_PSET_KEY_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* Names of operations that have none of their own. */
#define DT_NAME_BARRIER "dtrain.barrier"
#define DT_NAME_JOIN "dtrain.join"
#define DT_NAME_PSET "dtrain.pset"   /* adding and removing sets: one after the other */
#define DT_NAME_STOP "dtrain.stop"   /* agree.h */
#define DT_NAME_EQUAL "dtrain.equal" /* ditto */

/* The set of refused calls on a set that does not exist, in reports. */
#define DT_PSET_NONE INT32_MAX

/* Bytes of the longest key. */
#define DT_KEY_MAX (DTRAIN_NAME_MAX + 32)

/* Writes a key, with a final zero, and returns its length. The name has at most DTRAIN_NAME_MAX
 * bytes. */
size_t dt_pset_key(int32_t pset, const char *name, size_t length, char key[DT_KEY_MAX + 1]);

/* The set of a key; *name is where its name starts, or NULL is passed. */
int32_t dt_pset_key_read(const char *key, size_t length, const char **name);

/* Writes "'name'" or "'name' of process set 3", long names cut, and returns text. */
const char *dt_pset_key_describe(const char *key, size_t length, char *text, size_t cap);
#define DT_KEY_TEXT_MAX 256

#endif
