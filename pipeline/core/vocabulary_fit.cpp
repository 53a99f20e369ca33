#include "pipeline/core/vocabulary_fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

Error nothing_left(std::size_t row, std::uint32_t vocabulary) {
    return teacher_error("position " + std::to_string(row) + " has no probability on the " +
                         std::to_string(vocabulary) + " ids of the student's vocabulary");
}

/// −inf in this type.
std::vector<std::byte> no_logit(ElementType type) {
    std::vector<std::byte> bytes(element_size(type));
    if (type == ElementType::f32) {
        std::memcpy(bytes.data(), &kNone, sizeof kNone);
    } else {
        const std::uint16_t bits = type == ElementType::f16 ? float_to_half(kNone) : float_to_bfloat16(kNone);
        std::memcpy(bytes.data(), &bits, sizeof bits);
    }
    return bytes;
}

bool has_finite(const ArrayView& values, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
        if (std::isfinite(element_as_float(values, i))) {
            return true;
        }
    }
    return false;
}

/// Cuts rows of logits to `vocabulary`, or pads them with −inf.
Result<TeacherTargets> fit_logits(TeacherTargets targets, std::uint32_t vocabulary) {
    const std::size_t size = element_size(targets.values.type);
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    const std::size_t kept = std::min(targets.width, vocabulary);
    const std::vector<std::byte> none = no_logit(targets.values.type);
    struct Held {
        std::vector<std::byte> values;
        std::shared_ptr<const void> before;  // of the loss mask
    };
    auto held = std::make_shared<Held>();
    held->values.reserve(positions * vocabulary * size);
    for (std::size_t row = 0; row < positions; ++row) {
        if (kept < targets.width && row_is_given(targets, row) &&
            !has_finite(targets.values, row * targets.width, kept)) {
            return nothing_left(row, vocabulary);
        }
        const auto logits = targets.values.bytes.subspan(row * targets.width * size, kept * size);
        held->values.insert(held->values.end(), logits.begin(), logits.end());
        for (std::size_t id = kept; id < vocabulary; ++id) {
            held->values.insert(held->values.end(), none.begin(), none.end());
        }
    }
    if (!targets.loss_mask.bytes.empty()) {
        held->before = targets.owner;
    }
    targets.held_bytes = held->values.size() + (held->before ? targets.held_bytes : 0);
    targets.values.bytes = held->values;
    targets.width = vocabulary;
    targets.owner = std::move(held);
    return targets;
}

class TopkFit {
  public:
    TopkFit(const TeacherTargets& targets, std::uint32_t vocabulary)
        : targets_(targets),
          vocabulary_(vocabulary),
          width_(std::min(targets.width, vocabulary)),
          has_tail_(!targets.tail.bytes.empty()),
          held_(std::make_shared<Held>()) {}

    Result<TeacherTargets> run() {
        const std::size_t positions = std::size_t{targets_.rows} * targets_.columns;
        held_->ids.resize(positions * width_);
        held_->values.resize(positions * width_);
        held_->tail.resize(positions);
        held_->before = targets_.owner;
        for (std::size_t row = 0; row < positions; ++row) {
            if (!row_is_given(targets_, row)) {
                continue;
            }
            if (!fit(row)) {
                return nothing_left(row, vocabulary_);
            }
        }
        TeacherTargets fitted = targets_;
        fitted.width = width_;
        fitted.ids = {ElementType::i32, std::as_bytes(std::span(held_->ids))};
        fitted.values = {ElementType::f32, std::as_bytes(std::span(held_->values))};
        fitted.tail = {ElementType::f32, std::as_bytes(std::span(held_->tail))};
        fitted.held_bytes = (held_->ids.size() + held_->values.size() + held_->tail.size()) * sizeof(float) +
                            (targets_.loss_mask.bytes.empty() ? 0 : targets_.held_bytes);
        if (targets_.loss_mask.bytes.empty()) {
            held_->before.reset();
        }
        fitted.owner = held_;
        return fitted;
    }

  private:
    struct Held {
        std::vector<std::int32_t> ids;
        std::vector<float> values;
        std::vector<float> tail;
        std::shared_ptr<const void> before;  // of the loss mask
    };

    /// False if nothing is left of the row.
    bool fit(std::size_t row) {
        const std::span<std::int32_t> ids = std::span(held_->ids).subspan(row * width_, width_);
        const std::span<float> values = std::span(held_->values).subspan(row * width_, width_);
        float& log_tail = held_->tail[row];
        log_tail = has_tail_ ? element_as_float(targets_.tail, row) : kUnknownTail;
        std::size_t count = 0;
        double named = 0;
        double kept = 0;
        for (std::size_t i = row * targets_.width; i < (row + 1) * targets_.width; ++i) {
            const std::uint32_t id = element_as_id(targets_.ids, i);
            const float value = element_as_float(targets_.values, i);
            const double probability = std::exp(static_cast<double>(value));
            named += probability;
            if (id < vocabulary_ && count < width_) {
                ids[count] = static_cast<std::int32_t>(id);
                values[count] = value;
                kept += probability;
                ++count;
            }
        }
        if (count == targets_.width) {
            return true;
        }
        const std::size_t others = vocabulary_ - count;
        double tail = log_tail == kUnknownTail ? std::max(0.0, 1 - named) : std::exp(static_cast<double>(log_tail));
        tail = others > 0 ? tail : 0;
        const double mass = kept + tail;
        if (!(mass > 0)) {
            return false;
        }
        const double log_mass = std::log(mass);
        for (float& value : values.first(count)) {
            value = static_cast<float>(value - log_mass);
        }
        const double share = others > 0 ? tail / mass / static_cast<double>(others) : 0;
        name_unnamed(ids.first(count), ids.subspan(count));
        std::fill(values.begin() + static_cast<std::ptrdiff_t>(count), values.end(),
                  static_cast<float>(std::log(share)));
        log_tail = static_cast<float>(std::log(share * static_cast<double>(vocabulary_ - width_)));
        return true;
    }

    /// The highest ids that are not in `named`, descending.
    void name_unnamed(std::span<const std::int32_t> named, std::span<std::int32_t> ids) const {
        std::vector<std::int32_t> taken(named.begin(), named.end());
        std::sort(taken.begin(), taken.end());
        auto id = static_cast<std::int32_t>(vocabulary_);
        for (std::int32_t& free : ids) {
            for (--id; !taken.empty() && taken.back() >= id; taken.pop_back()) {
                id -= taken.back() == id ? 1 : 0;
            }
            free = id;
        }
    }

    const TeacherTargets& targets_;
    std::uint32_t vocabulary_;
    std::uint32_t width_;
    bool has_tail_;
    std::shared_ptr<Held> held_;
};

bool names_others(const TeacherTargets& targets, std::uint32_t vocabulary) {
    const std::size_t count = targets.ids.bytes.size() / sizeof(std::uint32_t);
    for (std::size_t i = 0; i < count; ++i) {
        if (element_as_id(targets.ids, i) >= vocabulary && row_is_given(targets, i / targets.width)) {
            return true;
        }
    }
    return false;
}

}  // namespace

Result<TeacherTargets> fit_vocabulary(TeacherTargets targets, std::uint32_t vocabulary) {
    switch (targets.kind) {
        case TeacherTargets::Kind::logits:
            return targets.width == vocabulary ? Result<TeacherTargets>(std::move(targets))
                                               : fit_logits(std::move(targets), vocabulary);
        case TeacherTargets::Kind::topk:
            return targets.width > vocabulary || names_others(targets, vocabulary)
                       ? TopkFit(targets, vocabulary).run()
                       : Result<TeacherTargets>(std::move(targets));
        case TeacherTargets::Kind::hidden_states:
        case TeacherTargets::Kind::tensors:
            break;
    }
    return targets;
}

TeacherHead fit_head(TeacherHead head, std::uint32_t vocabulary) {
    head.rows = std::min(head.rows, vocabulary);
    head.values.bytes = head.values.bytes.first(std::size_t{head.rows} * head.columns * element_size(head.values.type));
    return head;
}

}  // namespace distilld
