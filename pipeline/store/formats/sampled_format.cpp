#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/random.hpp"
#include "pipeline/core/softmax_sums.hpp"
#include "pipeline/store/formats/position_format.hpp"

namespace distilld {
namespace {

/// Draws with replacement from the teacher's distribution; an id is stored with its number of draws. The expectation of
/// count / draws is the teacher's probability, for each token of the vocabulary.
class SampledFormat final : public PositionFormat {
  public:
    explicit SampledFormat(const StoreManifest& manifest)
        : samples_(manifest.samples),
          width_(static_cast<std::uint32_t>(std::min<std::uint64_t>(manifest.samples, manifest.vocabulary))),
          vocabulary_(manifest.vocabulary),
          bits_(id_bits(manifest.vocabulary)),
          unpacker_(bits_),
          streams_{{"ids", ElementType::u8, 0}, {"draws", ElementType::u8, 0}, {"counts", ElementType::u8, 1}} {
        for (std::size_t draws = 0; draws < log_shares_.size(); ++draws) {
            log_shares_[draws] = static_cast<float>(std::log(static_cast<double>(draws) / samples_));
        }
        // FNV-1a, so that draws differ between datasets.
        for (const char letter : manifest.dataset_hash) {
            seed_ = (seed_ ^ static_cast<unsigned char>(letter)) * 0x100000001B3ULL;
        }
    }

    Needs needs() const override { return Needs::logits; }
    const std::vector<StoreStream>& streams() const override { return streams_; }
    std::uint32_t width() const override { return width_; }
    ElementType value_type() const override { return ElementType::f32; }

    void encode(const PositionTargets& position, StoredRow& row) const override {
        const std::vector<double> draws = draws_of(position);
        std::vector<double> masses(position.logits.size());
        write_masses(position.logits, largest(position.logits), masses);
        double total = 0;
        for (const double mass : masses) {
            total += mass;
        }
        struct Drawn {
            std::int32_t id;
            std::uint32_t count;
        };
        std::vector<Drawn> drawn;
        double below = 0;
        std::size_t next = 0;
        std::int32_t last_possible = 0;
        for (std::size_t id = 0; id < masses.size() && next < draws.size(); ++id) {
            below += masses[id];
            last_possible = masses[id] > 0 ? static_cast<std::int32_t>(id) : last_possible;
            const std::size_t first = next;
            while (next < draws.size() && draws[next] * total < below) {
                ++next;
            }
            if (next > first) {
                drawn.push_back({static_cast<std::int32_t>(id), static_cast<std::uint32_t>(next - first)});
            }
        }
        if (next < draws.size()) {  // draws beyond the rounded total
            if (drawn.empty() || drawn.back().id != last_possible) {
                drawn.push_back({last_possible, 0});
            }
            drawn.back().count += static_cast<std::uint32_t>(draws.size() - next);
        }
        std::ranges::sort(
            drawn, [](const Drawn& a, const Drawn& b) { return a.count != b.count ? a.count > b.count : a.id < b.id; });
        std::vector<std::int32_t> ids;
        for (const Drawn& entry : drawn) {
            ids.push_back(entry.id);
            row.streams[kDraws].push_back(static_cast<std::byte>(entry.count));
        }
        append_packed(row.streams[kIds], ids, bits_);
        row.streams[kCounts].push_back(static_cast<std::byte>(drawn.size()));
    }

    std::optional<std::string> find_defect(const StoredRowView& row) const override {
        if (auto defect = find_length_defect(streams_, row)) {
            return defect;
        }
        std::vector<std::int32_t> ids(width_);
        std::size_t id_at = 0;
        std::size_t entry = 0;
        for (std::uint32_t i = 0; i < row.tokens; ++i) {
            const auto count = static_cast<std::uint32_t>(row.streams[kCounts][i]);
            const std::uint64_t id_bytes = packed_bytes(count, bits_);
            if (count < 1 || count > width_ || row.streams[kIds].size() < id_at + id_bytes ||
                row.streams[kDraws].size() < entry + count) {
                return "its streams do not have the bytes that its entries need";
            }
            const std::uint32_t max = max_id(unpacker_, row.streams[kIds].subspan(id_at), std::span(ids).first(count));
            if (max >= vocabulary_) {
                return "token id " + std::to_string(max) + " is outside the vocabulary";
            }
            std::uint32_t draws = 0;
            for (const std::byte drawn : row.streams[kDraws].subspan(entry, count)) {
                draws += static_cast<std::uint32_t>(drawn);
            }
            if (draws != samples_) {
                return "a position has " + std::to_string(draws) + " draws, not " + std::to_string(samples_);
            }
            id_at += id_bytes;
            entry += count;
        }
        if (row.streams[kIds].size() != id_at || row.streams[kDraws].size() != entry) {
            return "its streams do not have the bytes that its entries need";
        }
        return std::nullopt;
    }

    void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const override {
        FillerIds filler(vocabulary_, width_);
        std::size_t id_at = 0;
        std::size_t entry = 0;
        for (const TokenRun& run : runs) {
            for (std::uint32_t i = 0; i < run.count; ++i) {
                const auto count = static_cast<std::uint32_t>(row.streams[kCounts][run.token + i]);
                const std::size_t place = (std::size_t{run.position} + i) * width_;
                const std::span ids(target.ids + place, width_);
                const std::span values(reinterpret_cast<float*>(target.values) + place, width_);
                unpacker_.unpack(row.streams[kIds].subspan(id_at), ids.first(count));
                filler.fill(ids.first(count), ids.subspan(count));
                for (std::uint32_t e = 0; e < count; ++e) {
                    values[e] = log_shares_[static_cast<std::size_t>(row.streams[kDraws][entry + e])];
                }
                std::fill(values.begin() + count, values.end(), kNone);
                target.tail[run.position + i] = kNone;
                id_at += packed_bytes(count, bits_);
                entry += count;
            }
        }
    }

  private:
    static constexpr float kNone = -std::numeric_limits<float>::infinity();
    static constexpr std::size_t kIds = 0;
    static constexpr std::size_t kDraws = 1;
    static constexpr std::size_t kCounts = 2;

    /// Sorted uniform draws in [0, 1).
    std::vector<double> draws_of(const PositionTargets& position) const {
        const std::uint64_t of_row = SplitMix64(seed_ ^ SplitMix64(position.row).next()).next();
        SplitMix64 random(of_row ^ SplitMix64(position.position).next());
        std::vector<double> draws(samples_);
        std::ranges::generate(draws, [&] { return random.uniform(); });
        std::ranges::sort(draws);
        return draws;
    }

    std::uint32_t samples_;
    std::uint32_t width_;
    std::uint64_t vocabulary_;
    std::uint32_t bits_;
    BitUnpacker unpacker_;
    std::uint64_t seed_ = 0xCBF29CE484222325ULL;
    std::array<float, 256> log_shares_{};  ///< indexed by an entry's number of draws
    std::vector<StoreStream> streams_;
};

}  // namespace

std::unique_ptr<PositionFormat> make_sampled_format(const StoreManifest& manifest) {
    return std::make_unique<SampledFormat>(manifest);
}

}  // namespace distilld
