#include "pipeline/core/vocabulary/mapped_rows.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "pipeline/core/target_rows.hpp"

namespace distilld {

MappedRows::MappedRows(const TokenAlignment& alignment, std::uint32_t width, std::size_t positions)
    : alignment_(alignment),
      width_(std::min(width, static_cast<std::uint32_t>(alignment.common_ids().size()))),
      held_(std::make_shared<Held>()) {
    held_->ids.resize(positions * width_);
    held_->values.resize(positions * width_);
    held_->tail.resize(positions);
    held_->mask.resize(positions);
    if (width_ > 0) {
        places_.resize(static_cast<std::size_t>(alignment_.common_ids().front()) + 1, kNoPartner);
    }
}

double MappedRows::put(std::size_t position, const TeacherTargets& targets, std::size_t row) {
    double named = 0;
    for (std::size_t i = row * targets.width; i < (row + 1) * targets.width; ++i) {
        named += std::exp(element_as_double(targets.values, i));
    }
    const float log_tail = targets.tail.bytes.empty() ? kUnknownTail : element_as_float(targets.tail, row);
    const double tail = log_tail == kUnknownTail ? std::max(0.0, 1 - named) : std::exp(static_cast<double>(log_tail));
    const double dropped = take_entries(targets, row);
    const std::size_t places = width_ - entries_.size();
    const double unnamed = static_cast<double>(std::max(targets.vocabulary, std::uint64_t{alignment_.teacher_ids()})) -
                           static_cast<double>(targets.width);
    const double share = unnamed > 0 ? tail / unnamed : 0;
    fill(places, static_cast<float>(std::log(share)));
    for (std::size_t i = 0; i < width_; ++i) {
        held_->ids[position * width_ + i] = entries_[i].id;
        held_->values[position * width_ + i] = entries_[i].value;
    }
    const double rest = std::max(0.0, tail + dropped - share * static_cast<double>(places));
    held_->tail[position] = dropped == 0 && places == 0 ? log_tail : static_cast<float>(std::log(rest));
    held_->mask[position] = 1;
    return std::max(0.0, named - dropped);
}

double MappedRows::take_entries(const TeacherTargets& targets, std::size_t row) {
    double dropped = 0;
    entries_.clear();
    bool joined = false;
    for (std::size_t i = row * targets.width; i < (row + 1) * targets.width; ++i) {
        const std::int32_t id = alignment_.student_id(element_as_id(targets.ids, i));
        const float value = element_as_float(targets.values, i);
        if (id == kNoPartner) {
            dropped += std::exp(static_cast<double>(value));
            continue;
        }
        std::int32_t& place = places_[static_cast<std::size_t>(id)];
        if (place == kNoPartner) {
            place = static_cast<std::int32_t>(entries_.size());
            entries_.push_back({id, value});
        } else {
            float& sum = entries_[static_cast<std::size_t>(place)].value;
            sum =
                static_cast<float>(std::log(std::exp(static_cast<double>(sum)) + std::exp(static_cast<double>(value))));
            joined = true;
        }
    }
    if (joined) {
        std::ranges::sort(entries_, std::greater(), &Entry::value);
    }
    return dropped;
}

void MappedRows::fill(std::size_t places, float value) {
    const std::size_t named = entries_.size();
    for (auto id = alignment_.common_ids().begin(); entries_.size() < named + places; ++id) {
        if (places_[static_cast<std::size_t>(*id)] == kNoPartner) {
            entries_.push_back({*id, value});
        }
    }
    for (std::size_t i = 0; i < named; ++i) {
        places_[static_cast<std::size_t>(entries_[i].id)] = kNoPartner;
    }
}

TeacherTargets MappedRows::finish() {
    TeacherTargets targets;
    targets.rows = 1;
    targets.columns = static_cast<std::uint32_t>(held_->mask.size());
    targets.width = width_;
    targets.ids = {ElementType::i32, std::as_bytes(std::span(held_->ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(held_->values))};
    targets.tail = {ElementType::f32, std::as_bytes(std::span(held_->tail))};
    targets.loss_mask = {ElementType::u8, std::as_bytes(std::span(held_->mask))};
    targets.held_bytes =
        (held_->ids.size() + held_->values.size() + held_->tail.size()) * sizeof(float) + held_->mask.size();
    targets.owner = held_;
    return targets;
}

}  // namespace distilld
