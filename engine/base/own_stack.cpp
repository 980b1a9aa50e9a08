#include "base/own_stack.h"

#include <pthread.h>

#include <cstring>
#include <exception>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

struct Call {
  const std::function<void()>& work;
  std::exception_ptr thrown;
};

void* run(void* given) {
  auto* call = static_cast<Call*>(given);
  try {
    call->work();
  } catch (...) {
    call->thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void run_on_own_stack(size_t bytes, const std::function<void()>& work) {
  constexpr size_t kPage = 65536;  // a multiple of every page size
  Call call{work, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int status = pthread_attr_setstacksize(&attributes, (bytes + kPage - 1) / kPage * kPage);
  pthread_t thread;
  if (status == 0) status = pthread_create(&thread, &attributes, &run, &call);
  pthread_attr_destroy(&attributes);
  if (status != 0)
    throw Error(ErrorCode::kOutOfMemory, "stack",
                cat("no thread with a stack of ", bytes, " bytes could be started: ", std::strerror(status)));
  pthread_join(thread, nullptr);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

}  // namespace octavo
