#include "pipeline/store/divergence.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipeline/core/softmax_sums.hpp"

namespace distilld {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
/// Smaller masses outside the stored entries are only rounding.
constexpr double kMinMass = 1e-12;

/// log Σ exp of the teacher's logits, and Σ p·log p.
struct Teacher {
    double log_total = 0;
    double negative_entropy = 0;
};

Teacher read_teacher(std::span<const float> logits) {
    const float max = largest(logits);
    const auto [total, weighted] = weighted_masses(logits, max);
    return {max + std::log(total), weighted / total - std::log(total)};
}

/// log of the sum of the stored masses.
double log_sum(const StoredDistribution& stored) {
    double sum = std::exp(static_cast<double>(stored.tail));
    for (const float value : stored.values) {
        sum += std::exp(static_cast<double>(value));
    }
    return std::log(sum);
}

/// log of the mass of one token outside the stored entries.
double log_share(const StoredDistribution& stored, std::size_t vocabulary) {
    const auto others = static_cast<double>(vocabulary - stored.ids.size());
    return others > 0 ? stored.tail - std::log(others) : kNone;
}

}  // namespace

double kl_teacher_stored(std::span<const float> logits, const StoredDistribution& stored) {
    const Teacher teacher = read_teacher(logits);
    const double normaliser = log_sum(stored);
    double divergence = teacher.negative_entropy;
    double inside = 0;
    for (std::size_t i = 0; i < stored.ids.size(); ++i) {
        const double p = std::exp(logits[static_cast<std::size_t>(stored.ids[i])] - teacher.log_total);
        inside += p;
        if (p > kMinMass) {
            divergence -= p * (stored.values[i] - normaliser);
        }
    }
    const double outside = 1 - inside;
    if (outside > kMinMass) {
        divergence -= outside * (log_share(stored, logits.size()) - normaliser);
    }
    return std::max(divergence, 0.0);
}

double kl_stored_teacher(std::span<const float> logits, const StoredDistribution& stored) {
    const Teacher teacher = read_teacher(logits);
    const double normaliser = log_sum(stored);
    double divergence = 0;
    double all_logs = 0;  // of the teacher's log-probabilities of the tokens outside
    const bool has_tail = stored.tail > kNone && stored.ids.size() < logits.size();
    if (has_tail) {
        for (const float logit : logits) {
            all_logs += logit - teacher.log_total;
        }
    }
    for (std::size_t i = 0; i < stored.ids.size(); ++i) {
        const double log_p = logits[static_cast<std::size_t>(stored.ids[i])] - teacher.log_total;
        all_logs -= has_tail ? log_p : 0.0;
        const double log_q = stored.values[i] - normaliser;
        if (log_q > kNone) {
            divergence += std::exp(log_q) * (log_q - log_p);
        }
    }
    if (has_tail) {
        const double log_q = log_share(stored, logits.size()) - normaliser;
        const auto others = static_cast<double>(logits.size() - stored.ids.size());
        divergence += std::exp(log_q) * (others * log_q - all_logs);
    }
    return std::max(divergence, 0.0);
}

}  // namespace distilld
