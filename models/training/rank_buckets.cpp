#include "models/training/rank_buckets.hpp"

#include <algorithm>
#include <utility>

namespace distilld::models {

using torch::Tensor;

std::span<const std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> writable_bytes_of(const Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::vector<RankBucket> make_buckets(std::span<const BucketedMaster> masters, std::int64_t max_elements) {
    std::vector<RankBucket> buckets;
    for (const BucketedMaster& master : masters) {
        for (std::int64_t begin = 0; begin < master.size;) {
            if (buckets.empty() || buckets.back().size >= max_elements || buckets.back().owner != master.owner) {
                buckets.push_back({master.owner, {}, 0});
            }
            RankBucket& bucket = buckets.back();
            const std::int64_t count = std::min(master.size - begin, max_elements - bucket.size);
            bucket.parts.push_back({master.master, begin, count, bucket.size, begin + count == master.size});
            bucket.size += count;
            begin += count;
        }
    }
    return buckets;
}

MovingBucket::MovingBucket(RankExchange& ranks, const RankBucket& bucket, const SumPlan& plan,
                           std::map<SumNode, Tensor> held, torch::ScalarType type, bool to_all)
    : ranks_(ranks), bucket_(bucket), plan_(plan), held_(std::move(held)), type_(type), to_all_(to_all) {}

bool MovingBucket::advance() {
    finish_round();
    if (round_ > plan_.rounds) {
        return false;
    }
    if (round_ == plan_.rounds) {
        begin_distribution();
    } else {
        begin_round();
    }
    ++round_;
    return true;
}

void MovingBucket::finish_round() {
    for (Arriving& one : arriving_) {
        one.transfer->wait();
        if (round_ > plan_.rounds) {
            total_ = one.more;
        } else {
            held_.at(one.node).add_(one.more);
        }
    }
    for (const auto& transfer : leaving_) {
        transfer->wait();
    }
    arriving_.clear();
    leaving_.clear();
}

void MovingBucket::begin_round() {
    for (const SumStep& step : plan_.steps) {
        if (step.round != round_) {
            continue;
        }
        if (step.to == ranks_.rank() && step.from == ranks_.rank()) {
            held_.at(step.node).add_(held_.at(step.more));
        } else if (step.to == ranks_.rank()) {
            receive(step.node, step.from);
        } else if (step.from == ranks_.rank()) {
            send(held_.at(step.more), step.to);
        }
    }
}

void MovingBucket::begin_distribution() {
    const std::uint32_t rank = ranks_.rank();
    const bool wanted = to_all_ || bucket_.owner == rank;
    if (plan_.root != rank) {
        held_.clear();
        if (wanted) {
            receive({}, plan_.root);
        }
        return;
    }
    Tensor sum = total_of(plan_, held_);
    for (std::uint32_t to = 0; to < ranks_.count(); ++to) {
        if (to != rank && (to_all_ || to == bucket_.owner)) {
            send(sum, to);
        }
    }
    if (wanted) {
        total_ = std::move(sum);
    }
}

void MovingBucket::send(const Tensor& sum, std::uint32_t to) {
    leaving_.push_back(ranks_.begin_send(bytes_of(sum), to));
}

void MovingBucket::receive(SumNode node, std::uint32_t from) {
    Arriving one{node, torch::empty({bucket_.size}, type_), nullptr};
    one.transfer = ranks_.begin_receive(writable_bytes_of(one.more), from);
    arriving_.push_back(std::move(one));
}

}  // namespace distilld::models
