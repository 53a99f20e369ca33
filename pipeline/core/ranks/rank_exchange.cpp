#include "pipeline/core/ranks/rank_exchange.hpp"

#include <stdexcept>

namespace distilld {

namespace {

constexpr std::size_t kMaxMessage = std::size_t{64} << 20;

std::size_t checked(std::uint64_t size) {
    if (size > kMaxMessage) {
        throw std::runtime_error("a message of another rank has " + std::to_string(size) + " bytes");
    }
    return static_cast<std::size_t>(size);
}

}  // namespace

/// Along a binomial tree: a rank gets the bytes from the one without its lowest bit.
void RankExchange::broadcast(std::span<std::byte> bytes) {
    std::uint32_t step = 1;
    while (step < count() && (rank() & step) == 0) {
        step *= 2;
    }
    if (rank() != 0) {
        receive(bytes, rank() - step);
    }
    for (step /= 2; step > 0; step /= 2) {
        if (rank() + step < count()) {
            send(bytes, rank() + step);
        }
    }
}

std::vector<std::string> RankExchange::gather(const std::string& mine) {
    std::vector<std::string> all(count());
    all[rank()] = mine;
    if (rank() != 0) {
        const std::uint64_t size = checked(mine.size());
        send(std::as_bytes(std::span(&size, 1)), 0);
        send(std::as_bytes(std::span(mine)), 0);
    }
    for (std::uint32_t other = 1; rank() == 0 && other < count(); ++other) {
        std::uint64_t size = 0;
        receive(std::as_writable_bytes(std::span(&size, 1)), other);
        all[other].resize(checked(size));
        receive(std::as_writable_bytes(std::span(all[other])), other);
    }
    for (std::string& text : all) {
        std::uint64_t size = text.size();
        broadcast(std::as_writable_bytes(std::span(&size, 1)));
        text.resize(checked(size));
        broadcast(std::as_writable_bytes(std::span(text)));
    }
    return all;
}

}  // namespace distilld
