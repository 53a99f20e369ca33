#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace distilld {

/// A place where a job runs, and what of the machine it has there.
struct Slot {
    std::uint32_t number = 0;          ///< from 0
    std::vector<std::uint32_t> cores;  ///< ascending; empty = whichever the service may use
    std::string device;                ///< as CUDA_VISIBLE_DEVICES names it; empty = all that the service may use
};

/// Who has which slot. Pure; one thread.
class SlotTable {
  public:
    explicit SlotTable(std::vector<Slot> slots) : slots_(std::move(slots)), jobs_(slots_.size()) {}

    /// The first free slot is the job's from here on; one that has a slot keeps it. Null: all are taken.
    [[nodiscard]] const Slot* take(const std::string& job_id);
    /// Nothing happens to a job that has none.
    void release(const std::string& job_id);

    /// The slot that a job has; null: none.
    [[nodiscard]] const Slot* of(const std::string& job_id) const;
    [[nodiscard]] std::uint32_t busy() const noexcept { return busy_; }
    [[nodiscard]] std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(slots_.size()) - busy_; }

  private:
    std::vector<Slot> slots_;
    std::vector<std::string> jobs_;  ///< by slot; empty = free
    std::uint32_t busy_ = 0;
};

/// So many slots that share all there is.
[[nodiscard]] std::vector<Slot> shared_slots(std::uint32_t count);

}  // namespace distilld
