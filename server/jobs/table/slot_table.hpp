#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/supervisor/slot.hpp"

namespace distilld {

/// Which job has which slot. Pure; one thread.
class SlotTable {
  public:
    explicit SlotTable(std::vector<Slot> slots) : slots_(std::move(slots)), jobs_(slots_.size()) {}

    /// Gives the job the first free slot; a job that has a slot keeps it. Null: all are taken.
    [[nodiscard]] const Slot* take(const std::string& job_id);
    /// Does nothing for a job without a slot.
    void release(const std::string& job_id);

    /// The slot of a job; null: it has none.
    [[nodiscard]] const Slot* of(const std::string& job_id) const;
    [[nodiscard]] std::uint32_t busy() const noexcept { return busy_; }
    [[nodiscard]] std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(slots_.size()) - busy_; }

  private:
    std::vector<Slot> slots_;
    std::vector<std::string> jobs_;  ///< by slot; empty = free
    std::uint32_t busy_ = 0;
};

/// `count` slots that share the whole machine.
[[nodiscard]] std::vector<Slot> shared_slots(std::uint32_t count);

}  // namespace distilld
