#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/core/ranks/rank_exchange.hpp"
#include "pipeline/core/ranks/sum_plan.hpp"

namespace distilld::models {

/// Gradients that ranks send at once.
struct RankBucket {
    /// Neighbouring elements of one gradient.
    struct Part {
        std::size_t master = 0;
        std::int64_t begin = 0;
        std::int64_t count = 0;
        std::int64_t offset = 0;  ///< in the bucket
        bool last = false;        ///< the gradient ends here
    };
    std::uint32_t owner = 0;  ///< the rank that should hold the sum
    std::vector<Part> parts;
    std::int64_t size = 0;  ///< elements
};

/// A gradient to put into buckets.
struct BucketedMaster {
    std::size_t master = 0;
    std::int64_t size = 0;    ///< elements
    std::uint32_t owner = 0;  ///< the rank that should hold its sum
};

/// Buckets of at most `max_elements`, each of neighbours with one owner.
[[nodiscard]] std::vector<RankBucket> make_buckets(std::span<const BucketedMaster> masters, std::int64_t max_elements);

/// A bucket on its way to its sum over the ranks and, if `to_all`, to every rank. All ranks call advance() of all
/// buckets in the same order, so that several may be on their way. CPU.
class MovingBucket {
  public:
    /// `held`: this rank's sums, [bucket.size] each, of `type`. `plan` and `bucket` must outlive this.
    MovingBucket(RankExchange& ranks, const RankBucket& bucket, const SumPlan& plan,
                 std::map<SumNode, torch::Tensor> held, torch::ScalarType type, bool to_all);

    /// Waits for what the previous call has begun, and begins the next round. False: everything has arrived.
    bool advance();
    [[nodiscard]] const RankBucket& bucket() const noexcept { return bucket_; }
    /// After the last round: the sum; undefined if it is not for this rank.
    [[nodiscard]] const torch::Tensor& total() const noexcept { return total_; }

  private:
    struct Arriving {
        SumNode node;        ///< to be added to
        torch::Tensor more;  ///< outlives the transfer
        std::unique_ptr<RankExchange::Transfer> transfer;
    };

    void finish_round();
    void begin_round();
    void begin_distribution();
    void send(const torch::Tensor& sum, std::uint32_t to);
    void receive(SumNode node, std::uint32_t from);

    RankExchange& ranks_;
    const RankBucket& bucket_;
    const SumPlan& plan_;
    std::map<SumNode, torch::Tensor> held_;
    torch::ScalarType type_;
    bool to_all_;
    torch::Tensor total_;
    std::uint32_t round_ = 0;
    std::vector<Arriving> arriving_;
    std::vector<std::unique_ptr<RankExchange::Transfer>> leaving_;
};

[[nodiscard]] std::span<const std::byte> bytes_of(const torch::Tensor& tensor);
[[nodiscard]] std::span<std::byte> writable_bytes_of(const torch::Tensor& tensor);

}  // namespace distilld::models
