// Which lock guards what, for clang's -Wthread-safety; nothing for other compilers. The names are Abseil's.
//
//   Mutex mutex_;
//   int count_ STALLOC_GUARDED_BY(mutex_) = 0;
//   void Count() STALLOC_REQUIRES(mutex_);
#pragma once

#if defined(__clang__)
#define STALLOC_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define STALLOC_THREAD_ATTRIBUTE(attribute)
#endif

// For types.
#define STALLOC_CAPABILITY STALLOC_THREAD_ATTRIBUTE(capability("mutex"))
#define STALLOC_SCOPED_CAPABILITY STALLOC_THREAD_ATTRIBUTE(scoped_lockable)
// For data.
#define STALLOC_GUARDED_BY(mutex) STALLOC_THREAD_ATTRIBUTE(guarded_by(mutex))
// For functions.
#define STALLOC_REQUIRES(...) STALLOC_THREAD_ATTRIBUTE(exclusive_locks_required(__VA_ARGS__))
#define STALLOC_EXCLUDES(...) STALLOC_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define STALLOC_ACQUIRE(...) STALLOC_THREAD_ATTRIBUTE(exclusive_lock_function(__VA_ARGS__))
#define STALLOC_TRY_ACQUIRE(...) STALLOC_THREAD_ATTRIBUTE(exclusive_trylock_function(__VA_ARGS__))
#define STALLOC_RELEASE(...) STALLOC_THREAD_ATTRIBUTE(unlock_function(__VA_ARGS__))
#define STALLOC_ASSERTS_HELD STALLOC_THREAD_ATTRIBUTE(assert_exclusive_lock())
// What a lock does that is handed on: nobody follows it.
#define STALLOC_NO_THREAD_SAFETY_ANALYSIS STALLOC_THREAD_ATTRIBUTE(no_thread_safety_analysis)
