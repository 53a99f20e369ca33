#include "tests/simulation/virtual_clock.hpp"

#include <sys/timerfd.h>

#include <stdexcept>

namespace distilld::test {
namespace {

thread_local VirtualClock* of_this_thread = nullptr;

}  // namespace

// What --wrap=NAME calls __real_NAME and __wrap_NAME.
std::chrono::steady_clock::time_point real_now() noexcept __asm__("__real__ZNSt6chrono3_V212steady_clock3nowEv");
int real_create(int clock, int flags) noexcept __asm__("__real_timerfd_create");
int real_sync(int file) noexcept __asm__("__real_fsync");
int real_data_sync(int file) noexcept __asm__("__real_fdatasync");
int real_set(int file, int flags, const itimerspec* time, itimerspec* before) noexcept
    __asm__("__real_timerfd_settime");

// Declared for the linker only.
std::chrono::steady_clock::time_point wrapped_now() noexcept __asm__("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
int wrapped_create(int clock, int flags) noexcept __asm__("__wrap_timerfd_create");
int wrapped_set(int file, int flags, const itimerspec* time, itimerspec* before) noexcept
    __asm__("__wrap_timerfd_settime");

int wrapped_sync(int file) noexcept __asm__("__wrap_fsync");
int wrapped_data_sync(int file) noexcept __asm__("__wrap_fdatasync");

/// What is written survives the end of a process in any case.
int wrapped_sync(int file) noexcept {
    return of_this_thread != nullptr ? 0 : real_sync(file);
}

int wrapped_data_sync(int file) noexcept {
    return of_this_thread != nullptr ? 0 : real_data_sync(file);
}

std::chrono::steady_clock::time_point wrapped_now() noexcept {
    return of_this_thread != nullptr ? of_this_thread->now() : real_now();
}

int wrapped_create(int clock, int flags) noexcept {
    const int file = real_create(clock, flags);
    if (of_this_thread != nullptr && file >= 0) {
        of_this_thread->created(file);
    }
    return file;
}

int wrapped_set(int file, int flags, const itimerspec* time, itimerspec* before) noexcept {
    const auto delay = std::chrono::seconds(time->it_value.tv_sec) + std::chrono::nanoseconds(time->it_value.tv_nsec);
    const bool at_once = (flags & TFD_TIMER_ABSTIME) != 0;
    if (of_this_thread == nullptr || !of_this_thread->set(file, at_once ? delay * 0 : delay, delay.count() == 0)) {
        return real_set(file, flags, time, before);
    }
    const itimerspec off{};
    return real_set(file, 0, &off, before);  // forgets that it was fired
}

VirtualClock::VirtualClock() {
    if (of_this_thread != nullptr) {
        throw std::logic_error("a thread has one virtual clock at a time");
    }
    of_this_thread = this;
}

VirtualClock::~VirtualClock() {
    of_this_thread = nullptr;
}

std::optional<VirtualClock::Time> VirtualClock::next(int timers) const {
    const auto found = next_.find(timers);
    return found == next_.end() ? std::nullopt : found->second;
}

void VirtualClock::fire(int timers) {
    itimerspec at_once{};
    at_once.it_value.tv_nsec = 1;
    real_set(timers, TFD_TIMER_ABSTIME, &at_once, nullptr);
}

void VirtualClock::created(int timers) {
    newest_ = timers;
    next_[timers].reset();
}

bool VirtualClock::set(int timers, std::chrono::nanoseconds delay, bool off) {
    const auto found = next_.find(timers);
    if (found == next_.end()) {
        return false;
    }
    found->second = off ? std::nullopt : std::optional(now_ + delay);
    return true;
}

}  // namespace distilld::test
