#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "models/network/gradient_order.hpp"
#include "models/training/rank_buckets.hpp"
#include "pipeline/core/ranks/rank_exchange.hpp"
#include "pipeline/core/ranks/sum_plan.hpp"

namespace distilld::models {

/// The gradients of a step, summed over the ranks. On the CPU, wherever the student is.
class RankGradients {
  public:
    /// What a rank knows when the exchange begins.
    struct Begun {
        std::vector<bool> present;          ///< by gradient group: it has micro-batches with targets here
        std::optional<std::uint64_t> last;  ///< the ticket of the last one; nullopt: all gradients are complete
    };

    /// What it knows afterwards.
    struct Exchanged {
        std::vector<torch::Tensor> gradients;  ///< by master, on its device; undefined: not for this rank
        std::vector<bool> used;                ///< by master: whether this rank has added to it
        std::set<SumNode> nodes;               ///< those that this rank held sums of
        SumPlan plan;                          ///< with rank 0 as the owner
    };

    /// `masters`: the trained ones, the same on every rank. `backward`: all of them, in the order in which their
    /// gradients are completed. `to_all`: every rank gets the sums, and ranks own buckets in turn; otherwise, each
    /// owner gets its own.
    RankGradients(RankExchange& ranks, std::uint32_t groups, std::vector<torch::Tensor> masters,
                  const std::vector<BucketedMaster>& backward, bool to_all, std::shared_ptr<GradientOrder> order);

    /// Sends each gradient as soon as this rank has completed it. Any thread, but one at a time.
    [[nodiscard]] Exchanged exchange(const Begun& mine);
    /// After exchange(): the sum of the rows that GradientOrder keeps, on every rank. Compute thread. For a student on
    /// the CPU.
    [[nodiscard]] RowSums sum_kept_rows(const Exchanged& exchanged);

  private:
    using Nodes = std::map<SumNode, torch::Tensor>;

    /// This rank's sums of the bucket, after waiting for the gradients.
    [[nodiscard]] Nodes load(const RankBucket& bucket, const Begun& mine, Exchanged& found);

    RankExchange& ranks_;
    std::uint32_t groups_;
    std::vector<torch::Tensor> masters_;
    std::vector<RankBucket> buckets_;
    bool to_all_;
    std::shared_ptr<GradientOrder> order_;
    std::vector<std::optional<Nodes>> sums_;  ///< by master: those that are being sent
};

}  // namespace distilld::models
