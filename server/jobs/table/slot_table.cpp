#include "server/jobs/table/slot_table.hpp"

#include <algorithm>

namespace distilld {

const Slot* SlotTable::take(const std::string& job_id) {
    if (const Slot* held = of(job_id); held != nullptr) {
        return held;
    }
    const auto place = std::ranges::find(jobs_, std::string());
    if (place == jobs_.end()) {
        return nullptr;
    }
    *place = job_id;
    ++busy_;
    return &slots_[static_cast<std::size_t>(place - jobs_.begin())];
}

void SlotTable::release(const std::string& job_id) {
    const auto place = std::ranges::find(jobs_, job_id);
    if (place != jobs_.end()) {
        place->clear();
        --busy_;
    }
}

const Slot* SlotTable::of(const std::string& job_id) const {
    const auto place = std::ranges::find(jobs_, job_id);
    return place == jobs_.end() ? nullptr : &slots_[static_cast<std::size_t>(place - jobs_.begin())];
}

std::vector<Slot> shared_slots(std::uint32_t count) {
    std::vector<Slot> slots(count);
    for (std::uint32_t number = 0; number < count; ++number) {
        slots[number].number = number;
    }
    return slots;
}

}  // namespace distilld
