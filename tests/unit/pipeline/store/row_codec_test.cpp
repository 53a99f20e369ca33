#include "pipeline/store/formats/row_codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/formats/bit_packing.hpp"
#include "tests/unit/pipeline/store/store_fixture.hpp"

namespace distilld {
namespace {

using test::StoreData;
using testing::HasSubstr;

constexpr std::uint32_t kWidth = 6;

struct RoundTrip {
    TokenBatch batch;
    TeacherTargets put;
    TeacherTargets got;
};

RoundTrip round_trip(const StoreManifest& manifest, const TeacherTargets& targets, const TokenBatch& batch) {
    const RowCodec codec(manifest);
    TargetBuffers buffers;
    const auto rows = codec.encode(batch, targets);
    for (const StoredRow& row : rows.value()) {
        EXPECT_EQ(codec.find_defect(view_of(row)), std::nullopt);
    }
    return {batch, targets, codec.decode(batch, rows.value(), buffers).value()};
}

RoundTrip round_trip(StoreFormat format, StoreValues values = StoreValues::f16) {
    const TokenBatch batch = StoreData::batch({4, 1});
    return round_trip(StoreData::manifest(format, values), StoreData::targets(batch, format), batch);
}

/// Calls `check(position)` for the positions that carry a loss; all others must be marked.
template <class Check>
void for_each_stored(const RoundTrip& trip, Check check) {
    std::size_t stored = 0;
    for (std::size_t at = 0; at < trip.batch.labels.size(); ++at) {
        const bool wanted = trip.batch.labels[at] != kIgnoredLabel;
        ASSERT_EQ(row_is_given(trip.got, at), wanted) << at;
        if (wanted) {
            check(at);
            ++stored;
        }
    }
    ASSERT_EQ(stored, trip.batch.target_tokens);
}

TEST(BitPacking, LaysBitsOutInLittleEndianOrder) {
    std::vector<std::byte> bytes;
    append_packed(bytes, std::vector<std::int32_t>{0x2ABCD, 0x10001, 0x3FFFF}, 18);
    // 0x2ABCD | 0x10001 << 18 | 0x3FFFF << 36, made by Python.
    const std::vector<unsigned> expected{0xCD, 0xAB, 0x06, 0x00, 0xF4, 0xFF, 0x3F};
    ASSERT_EQ(bytes.size(), expected.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        EXPECT_EQ(static_cast<unsigned>(bytes[i]), expected[i]) << i;
    }
}

TEST(BitPacking, GivesBackWhatWasPut) {
    for (std::uint32_t bits = 1; bits <= 32; ++bits) {
        for (const std::size_t count : {1U, 2U, 7U, 64U}) {
            std::vector<std::int32_t> numbers(count);
            for (std::size_t i = 0; i < count; ++i) {
                const auto number = static_cast<std::uint32_t>(i * 2654435761U + 0xFFFFFFFFU) >> (32 - bits);
                numbers[i] = static_cast<std::int32_t>(number);
            }
            std::vector<std::byte> bytes;
            append_packed(bytes, numbers, bits);
            ASSERT_EQ(bytes.size(), packed_bytes(count, bits));
            std::vector<std::int32_t> got(count);
            BitUnpacker(bits).unpack(bytes, got);
            EXPECT_EQ(got, numbers) << bits << " bits, " << count;
        }
    }
}

TEST(RowCodec, GivesBackTopkAsItWas) {
    for (const StoreValues values : {StoreValues::f16, StoreValues::f32}) {
        const RoundTrip trip = round_trip(StoreFormat::topk, values);
        ASSERT_EQ(trip.got.width, kWidth);
        for_each_stored(trip, [&](std::size_t at) {
            EXPECT_EQ(element_as_float(trip.got.tail, at), element_as_float(trip.put.tail, at));
            for (std::size_t i = at * kWidth; i < (at + 1) * kWidth; ++i) {
                const float value = element_as_float(trip.put.values, i);
                EXPECT_EQ(element_as_id(trip.got.ids, i), element_as_id(trip.put.ids, i));
                EXPECT_EQ(element_as_float(trip.got.values, i),
                          values == StoreValues::f32 ? value : half_to_float(float_to_half(value)));
            }
        });
    }
}

TEST(RowCodec, PackedIsTopkInFewerBits) {
    const RoundTrip topk = round_trip(StoreFormat::topk);
    const RoundTrip packed = round_trip(StoreFormat::packed);
    EXPECT_EQ(test::bytes_of(packed.got), test::bytes_of(topk.got));
}

TEST(RowCodec, EightBitsAreWithinHalfAStep) {
    const RoundTrip trip = round_trip(StoreFormat::packed, StoreValues::u8);
    for_each_stored(trip, [&](std::size_t at) {
        const float first = element_as_float(trip.put.values, at * kWidth);
        const float last = element_as_float(trip.put.values, at * kWidth + kWidth - 1);
        const float step = (first - last) / 255;
        EXPECT_NEAR(element_as_float(trip.got.tail, at), element_as_float(trip.put.tail, at), 0.002);
        for (std::size_t i = at * kWidth; i < (at + 1) * kWidth; ++i) {
            EXPECT_EQ(element_as_id(trip.got.ids, i), element_as_id(trip.put.ids, i));
            // Half a step, and what the ends lose in 16 bits.
            EXPECT_NEAR(element_as_float(trip.got.values, i), element_as_float(trip.put.values, i), step / 2 + 0.004);
        }
    });
}

TEST(RowCodec, ToppKeepsAsManyAsReachPAndSharesTheTailAmongTheRest) {
    const RoundTrip trip = round_trip(StoreFormat::topp);
    ASSERT_EQ(trip.got.width, kWidth);
    bool shorter = false;
    for_each_stored(trip, [&](std::size_t at) {
        double mass = 0;
        std::size_t count = 0;
        while (count < kWidth && mass < 0.8) {
            mass += std::exp(static_cast<double>(element_as_float(trip.put.values, at * kWidth + count)));
            ++count;
        }
        shorter = shorter || count < kWidth;
        std::set<std::uint32_t> ids;
        double total = std::exp(static_cast<double>(element_as_float(trip.got.tail, at)));
        for (std::size_t i = 0; i < kWidth; ++i) {
            const float value = element_as_float(trip.got.values, at * kWidth + i);
            ids.insert(element_as_id(trip.got.ids, at * kWidth + i));
            total += std::exp(static_cast<double>(value));
            if (i < count) {
                EXPECT_EQ(element_as_id(trip.got.ids, at * kWidth + i), element_as_id(trip.put.ids, at * kWidth + i));
            } else {
                EXPECT_NEAR(std::exp(value), (1 - mass) / static_cast<double>(40 - count), 1e-4);
            }
        }
        EXPECT_EQ(ids.size(), kWidth) << "an id is named twice";
        EXPECT_NEAR(total, 1, 2e-3);
    });
    EXPECT_TRUE(shorter) << "no position of the test has fewer than k";
}

TEST(RowCodec, GivesBackLogits) {
    const RoundTrip wide = round_trip(StoreFormat::full, StoreValues::f32);
    const RoundTrip narrow = round_trip(StoreFormat::full);
    ASSERT_EQ(wide.got.kind, TeacherTargets::Kind::logits);
    for_each_stored(wide, [&](std::size_t at) {
        for (std::size_t i = at * 40; i < (at + 1) * 40; ++i) {
            const float logit = element_as_float(wide.put.values, i);
            EXPECT_EQ(element_as_float(wide.got.values, i), logit);
            EXPECT_EQ(element_as_float(narrow.got.values, i), half_to_float(float_to_half(logit)));
        }
    });
}

/// The mean over many positions of what a sampled store gives is the teacher's distribution, of each token: also of
/// those that no top-k has.
TEST(RowCodec, SamplesAreUnbiased) {
    StoreManifest manifest = StoreData::manifest(StoreFormat::sampled);
    manifest.rows = 4000;
    const RowCodec codec(manifest);
    std::vector<double> mean(StoreData::kVocabulary);
    std::vector<double> expected(StoreData::kVocabulary);
    const auto logits = StoreData::logits(0, 1);
    double total = 0;
    for (const float logit : logits) {
        total += std::exp(logit);
    }
    TokenBatch batch = StoreData::batch({0});
    batch.labels = {kIgnoredLabel, 1, kIgnoredLabel, kIgnoredLabel, kIgnoredLabel};
    const TeacherTargets targets = StoreData::full(batch);
    TargetBuffers buffers;
    for (std::uint64_t row = 0; row < manifest.rows; ++row) {
        batch.row_ids = {row};  // the same logits, other draws
        const auto stored = codec.encode(batch, targets).value();
        const TeacherTargets got = codec.decode(batch, stored, buffers).value();
        double sum = 0;
        for (std::size_t i = 20; i < 40; ++i) {
            const double p = std::exp(static_cast<double>(element_as_float(got.values, i)));
            sum += p;
            mean[element_as_id(got.ids, i)] += p / static_cast<double>(manifest.rows);
        }
        ASSERT_NEAR(sum, 1, 1e-6);
        ASSERT_EQ(element_as_float(got.tail, 1), -std::numeric_limits<float>::infinity());
    }
    const double draws = 20.0 * static_cast<double>(manifest.rows);
    for (std::size_t id = 0; id < mean.size(); ++id) {
        const double p = std::exp(logits[id]) / total;
        EXPECT_NEAR(mean[id], p, 5 * std::sqrt(p * (1 - p) / draws)) << id;
    }
}

TEST(RowCodec, CutsMoreEntriesAndReducesLogits) {
    const TokenBatch batch = StoreData::batch({2, 5});
    const StoreManifest manifest = StoreData::manifest(StoreFormat::topk, StoreValues::f32);
    const RoundTrip exact = round_trip(manifest, StoreData::entries(batch, kWidth), batch);
    const RoundTrip cut = round_trip(manifest, StoreData::entries(batch, 30), batch);
    const RoundTrip reduced = round_trip(manifest, StoreData::full(batch), batch);
    EXPECT_EQ(test::bytes_of(reduced.got), test::bytes_of(exact.got));
    EXPECT_EQ(test::bytes_of(cut.got)[0], test::bytes_of(exact.got)[0]);
    for_each_stored(cut, [&](std::size_t at) {
        EXPECT_NEAR(element_as_float(cut.got.tail, at), element_as_float(exact.got.tail, at), 1e-5);
    });
}

TEST(RowCodec, MeasuresWhatStoringCosts) {
    const TokenBatch batch = StoreData::batch({2});
    const auto cost = [&](StoreManifest manifest) {
        const auto rows = RowCodec(complete_manifest(manifest).value()).encode(batch, StoreData::full(batch));
        EXPECT_GT(rows.value().front().kl_tokens, 0U);
        return rows.value().front().kl_sum;
    };
    StoreManifest all = StoreData::manifest(StoreFormat::topk, StoreValues::f32);
    all.k = StoreData::kVocabulary;
    EXPECT_NEAR(cost(all), 0, 1e-6) << "with all tokens nothing is lost";
    StoreManifest few = StoreData::manifest(StoreFormat::packed);
    StoreManifest fewer = few;
    fewer.k = 2;
    EXPECT_GT(cost(few), 0.01);
    EXPECT_GT(cost(fewer), cost(few));
}

TEST(RowCodec, RefusesWhatItCannotKeep) {
    TokenBatch batch = StoreData::batch({2});
    const auto error = [&](StoreFormat format, const TeacherTargets& targets) {
        const auto rows = RowCodec(StoreData::manifest(format)).encode(batch, targets);
        return rows ? std::string("taken") : rows.error().message;
    };
    EXPECT_THAT(error(StoreFormat::packed, StoreData::entries(batch, 5)), HasSubstr("5 entries per position"));
    EXPECT_THAT(error(StoreFormat::sampled, StoreData::entries(batch, 6)), HasSubstr("needs the teacher's logits"));
    TeacherTargets hidden = StoreData::full(batch);
    hidden.kind = TeacherTargets::Kind::hidden_states;
    EXPECT_THAT(error(StoreFormat::full, hidden), HasSubstr("hidden states"));

    std::vector<float> values(StoreData::kColumns * StoreData::kVocabulary);
    values[1 * StoreData::kVocabulary + 3] = std::nanf("");
    TeacherTargets damaged = StoreData::full(batch);
    damaged.values.bytes = std::as_bytes(std::span(values));
    EXPECT_THAT(error(StoreFormat::full, damaged), HasSubstr("row 2, position 1: logit 3 is not a number"));

    batch.labels[0] = 1;  // the teacher gave nothing there
    EXPECT_THAT(error(StoreFormat::full, StoreData::full(StoreData::batch({2}))),
                HasSubstr("row 2, position 0: the teacher sent nothing"));
    batch.row_ids = {7};
    batch.labels[0] = kIgnoredLabel;
    EXPECT_THAT(error(StoreFormat::full, StoreData::full(StoreData::batch({2}))),
                HasSubstr("row 7 is outside the dataset of 7"));
}

TEST(RowCodec, RefusesABatchOfOtherLabels) {
    TokenBatch batch = StoreData::batch({1});
    const RowCodec codec(StoreData::manifest(StoreFormat::topk));
    const auto rows = codec.encode(batch, StoreData::entries(batch, kWidth)).value();
    TargetBuffers buffers;
    batch.labels[StoreData::kColumns - 1] = 1;
    const auto got = codec.decode(batch, rows, buffers);
    ASSERT_FALSE(got);
    EXPECT_THAT(got.error().message, HasSubstr("row 1: position 4 carries a loss and is not stored"));
}

TEST(TargetBuffers, AreUsedAgain) {
    TargetBuffers buffers(1000);
    auto first = buffers.take(600);
    const std::byte* const memory = first.get();
    auto second = buffers.take(600);
    EXPECT_NE(second.get(), memory);
    first.reset();
    EXPECT_EQ(buffers.take(500).get(), memory);
    EXPECT_NE(buffers.take(100).get(), memory) << "far too large for it";
}

}  // namespace
}  // namespace distilld
