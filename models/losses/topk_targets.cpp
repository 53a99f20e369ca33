#include "models/losses/topk_targets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace distilld::models {

bool temper_topk_row(std::span<const float> log_probabilities, float log_tail, std::int64_t vocabulary_size,
                     double temperature, std::span<float> probabilities, TopkRow& row) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const auto k = static_cast<std::int64_t>(log_probabilities.size());
    const double inverse = 1.0 / temperature;

    double known = 0;
    double largest = kNone;
    for (const float value : log_probabilities) {
        if (std::isnan(value) || value == std::numeric_limits<float>::infinity()) {
            return false;
        }
        largest = std::max(largest, static_cast<double>(value));
        if (log_tail == kUnknownTail) {
            known += std::exp(value);
        }
    }
    double tail = kNone;
    if (k < vocabulary_size) {
        if (log_tail == kUnknownTail) {
            tail = known < 1.0 ? std::log(1.0 - known) : kNone;
        } else if (std::isnan(log_tail)) {
            return false;
        } else {
            tail = log_tail;
        }
        // The first term is exactly 0 at T = 1.
        tail = (1.0 - inverse) * std::log(static_cast<double>(vocabulary_size - k)) + tail * inverse;
    }
    largest = std::max(largest * inverse, tail);
    if (!std::isfinite(largest)) {
        return false;
    }

    double total = std::exp(tail - largest);
    for (const float value : log_probabilities) {
        total += std::exp(static_cast<float>(value * inverse - largest));
    }
    const double log_total = std::log(total) + largest;
    double entropy = 0;
    for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
        const double log_p = log_probabilities[i] * inverse - log_total;
        const float p = std::exp(static_cast<float>(log_p));
        probabilities[i] = p;
        entropy += p > 0 ? p * log_p : 0.0;
    }
    const double tail_p = std::exp(tail - log_total);
    entropy += tail_p > 0 ? tail_p * (tail - log_total) : 0.0;
    row.tail = static_cast<float>(tail_p);
    row.negative_entropy = static_cast<float>(entropy);
    return true;
}

}  // namespace distilld::models
