#include "models/losses/topk_targets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "models/kernels/instructions.hpp"
#include "models/kernels/lanes.hpp"

namespace distilld::models {
namespace {

/// Sums over a row of log-probabilities, with their maximum subtracted first (0 if all are −∞). In fp64: an unknown
/// tail is what they lack to 1.
struct RowSums {
    double maximum = 0;     ///< of the log-probabilities
    double mass = 0;        ///< Σ e, e = exp((log p − maximum) / T); NaN if a log-probability is
    double weighted = 0;    ///< Σ e·log e
    double untempered = 0;  ///< Σ exp(log p − maximum), if asked for
};

struct RowKernel {
    const float* log_probabilities;
    float* exponentials;
    std::int64_t k;
    float inverse;  ///< 1 / T
    bool wants_untempered;

    DISTILLD_INLINE static void run(const RowKernel* row, RowSums* sums) {
        const float* values = row->log_probabilities;
        float* exponentials = row->exponentials;
        const std::int64_t k = row->k;
        const float inverse = row->inverse;
        const float maximum = kernels::array_maximum(values, k);
        const float shift = maximum > -std::numeric_limits<float>::infinity() ? maximum : 0.0F;
        for (std::int64_t i = 0; i < k; ++i) {
            exponentials[i] = kernels::exponential((values[i] - shift) * inverse);
        }
        sums->maximum = maximum;
        sums->mass = kernels::lane_sum<double>(k, [&](std::int64_t i) { return exponentials[i]; });
        sums->weighted = kernels::lane_sum<double>(k, [&](std::int64_t i) {
            const float exponent = (values[i] - shift) * inverse;
            // The bound keeps 0·−∞ away: the exponential of less is 0.
            return exponentials[i] * (exponent > -88.0F ? exponent : -88.0F);
        });
        if (row->wants_untempered) {
            sums->untempered =
                kernels::lane_sum<double>(k, [&](std::int64_t i) { return kernels::exponential(values[i] - shift); });
        }
    }
};

}  // namespace

bool temper_topk_row(std::span<const float> log_probabilities, float log_tail, std::int64_t vocabulary_size,
                     double temperature, std::span<float> probabilities, TopkRow& row) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const auto k = static_cast<std::int64_t>(log_probabilities.size());
    const double inverse = 1.0 / temperature;
    const bool tail_is_unknown = k < vocabulary_size && log_tail == kUnknownTail;

    const RowKernel kernel{log_probabilities.data(), probabilities.data(), k, static_cast<float>(inverse),
                           tail_is_unknown && temperature != 1.0};
    RowSums sums;
    kernels::run_widest<RowKernel>(&kernel, &sums);
    // NaN among the log-probabilities is NaN in the sum.
    if (std::isnan(sums.mass) || sums.maximum == -kNone) {
        return false;
    }
    double tail = kNone;
    if (k < vocabulary_size) {
        if (tail_is_unknown) {
            const double known = std::exp(sums.maximum) * (temperature == 1.0 ? sums.mass : sums.untempered);
            tail = known < 1.0 ? std::log(1.0 - known) : kNone;
        } else if (std::isnan(log_tail)) {
            return false;
        } else {
            tail = log_tail;
        }
        // The first term is exactly 0 at T = 1.
        tail = (1.0 - inverse) * std::log(static_cast<double>(vocabulary_size - k)) + tail * inverse;
    }
    const double maximum = sums.maximum * inverse;
    const double largest = std::max(maximum, tail);
    if (!std::isfinite(largest)) {
        return false;
    }
    const double log_total = largest + std::log(sums.mass * std::exp(maximum - largest) + std::exp(tail - largest));
    // p = e·scale, log p = log e + log_scale.
    const double log_scale = maximum - log_total;
    const double scale = std::exp(log_scale);
    for (float& p : probabilities) {
        p *= static_cast<float>(scale);
    }
    double entropy = scale > 0 ? scale * (sums.weighted + sums.mass * log_scale) : 0.0;
    const double tail_p = std::exp(tail - log_total);
    entropy += tail_p > 0 ? tail_p * (tail - log_total) : 0.0;
    row.tail = static_cast<float>(tail_p);
    row.negative_entropy = static_cast<float>(entropy);
    return true;
}

}  // namespace distilld::models
