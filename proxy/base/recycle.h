/*
 * Recycled memory is not freed, so a sanitizer would not notice who still uses it. These tell it.
 */
#ifndef HEADGATE_RECYCLE_H
#define HEADGATE_RECYCLE_H

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define RECYCLE_IS_WATCHED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define RECYCLE_IS_WATCHED
#endif

#ifdef RECYCLE_IS_WATCHED
#include <sanitizer/asan_interface.h>
/* From here on nobody may touch size bytes at data; and: they are in use again. */
#define recycle_hide(data, size) __asan_poison_memory_region(data, size)
#define recycle_show(data, size) __asan_unpoison_memory_region(data, size)
#else
#define recycle_hide(data, size) ((void)(data), (void)(size))
#define recycle_show(data, size) ((void)(data), (void)(size))
#endif

#endif
