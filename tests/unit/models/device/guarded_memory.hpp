#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

/// Memory of the fake device, and the page-locked one beside it.
namespace distilld::test {

/// Of whose addresses none may be touched; the same bytes lie elsewhere for the device itself.
class GuardedMemory : public c10::Allocator {
  public:
    [[nodiscard]] virtual void* seen(void* address) = 0;
    /// No more than what is given out now and `bytes`; 0: no bound.
    virtual void limit(std::uint64_t bytes) = 0;
};
GuardedMemory& device_memory();

class PinnedMemory : public c10::Allocator {
  public:
    [[nodiscard]] virtual bool holds(const void* address) = 0;
};
PinnedMemory& pinned_memory();

}  // namespace distilld::test
