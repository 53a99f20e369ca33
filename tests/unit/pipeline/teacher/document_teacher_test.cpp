#include "pipeline/teacher/document_teacher.hpp"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/caching_teacher.hpp"
#include "tests/support/fake_teacher.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;

constexpr std::int32_t kNone = kIgnoredLabel;
constexpr std::uint32_t kLength = 20;  ///< of the longest row

struct Place {
    std::uint32_t row;
    std::uint32_t begin;
    std::uint32_t length;
};

/// Rows of four positions; document i has the id 10 + i, and its inputs are 10·i, 10·i + 1, …
std::shared_ptr<TokenBatch> packed(std::uint32_t rows, std::uint32_t columns, const std::vector<Place>& places) {
    auto batch = std::make_shared<TokenBatch>();
    batch->number = 3;
    batch->rows = rows;
    batch->columns = columns;
    batch->input_ids.resize(std::size_t{rows} * columns, 0);
    batch->labels.resize(std::size_t{rows} * columns, kIgnoredLabel);
    batch->lengths.resize(rows);
    for (std::uint32_t r = 0; r < rows; ++r) {
        batch->row_ids.push_back(100 + r);
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto& [row, begin, length] = places[i];
        batch->documents.push_back({row, begin, length, 10 + i});
        for (std::uint32_t t = 0; t < length; ++t) {
            const std::size_t at = std::size_t{row} * columns + begin + t;
            batch->input_ids[at] = static_cast<std::int32_t>(10 * i + t);
            batch->labels[at] = static_cast<std::int32_t>(t + 1);
            ++batch->target_tokens;
        }
        batch->lengths[row] += static_cast<std::int32_t>(length);
    }
    return batch;
}

/// Remembers what it was asked.
class AskedTeacher final : public TeacherSource {
  public:
    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override { co_return TeacherInfo(); }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return {std::uint64_t{rows} * columns * 10, std::uint64_t{rows} * columns * 100, 7, 0};
    }
    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        asked.push_back(tokens);
        deadlines.push_back(deadline);
        if (asked.size() == fails_at) {
            co_return FetchError{FailureKind::overloaded, "busy", std::nullopt};
        }
        TeacherTargets targets = test::topk_targets(*tokens);
        targets.wire_bytes = 1000;
        targets.columns -= narrow ? 1 : 0;
        co_return EncodedAnswer(std::move(targets));
    }
    void close() override {}

    std::vector<std::shared_ptr<const TokenBatch>> asked;
    std::vector<std::chrono::nanoseconds> deadlines;
    std::size_t fails_at = 0;
    bool narrow = false;

  private:
    std::string name_ = "the teacher";
};

FetchResult<TeacherTargets> ask(TeacherSource& teacher, std::shared_ptr<const TokenBatch> tokens) {
    asio::io_context io;
    std::optional<FetchResult<EncodedAnswer>> answer;
    asio::co_spawn(io, teacher.fetch(0, std::move(tokens), std::chrono::seconds(9)),
                   [&answer](const std::exception_ptr& thrown, FetchResult<EncodedAnswer> result) {
                       ASSERT_EQ(thrown, nullptr);
                       answer.emplace(std::move(result));
                   });
    io.run();
    return *answer ? (*answer)->decode() : FetchResult<TeacherTargets>(answer->error());
}

/// The first of the two ids at each position.
std::vector<std::int32_t> first_ids(const TeacherTargets& targets) {
    std::vector<std::int32_t> ids(targets.ids.bytes.size() / sizeof(std::int32_t));
    std::memcpy(ids.data(), targets.ids.bytes.data(), targets.ids.bytes.size());
    std::vector<std::int32_t> first;
    for (std::size_t i = 0; i < ids.size(); i += 2) {
        first.push_back(ids[i]);
    }
    return first;
}

std::int32_t said(std::uint64_t document, std::uint32_t position) {
    return static_cast<std::int32_t>((document * 3 + position) % 7);
}

class DocumentTeacherTest : public ::testing::Test {
  protected:
    DocumentTeacherTest() {
        auto asked = std::make_unique<AskedTeacher>();
        asked_ = asked.get();
        teacher_ = make_document_teacher(std::move(asked), kLength);
    }

    AskedTeacher* asked_;
    std::unique_ptr<TeacherSource> teacher_;
};

TEST_F(DocumentTeacherTest, AsksAboutEachDocumentByItselfTogetherWithThoseOfLikeLengths) {
    const auto tokens = packed(2, 9, {{0, 0, 3}, {0, 3, 5}, {1, 0, 1}, {1, 1, 7}});
    ASSERT_TRUE(ask(*teacher_, tokens));
    ASSERT_EQ(asked_->asked.size(), 3U) << "3 positions beside 7 would be padded to more than a quarter";
    const TokenBatch& long_ones = *asked_->asked[0];
    EXPECT_EQ(long_ones.number, 3U);
    EXPECT_EQ(long_ones.columns, 16U) << "a multiple of sixteen";
    EXPECT_THAT(long_ones.row_ids, ElementsAre(13, 11));
    EXPECT_THAT(long_ones.lengths, ElementsAre(7, 5));
    EXPECT_THAT(long_ones.input_ids, ElementsAre(30, 31, 32, 33, 34, 35, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                                 10, 11, 12, 13, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    EXPECT_THAT(std::span(long_ones.labels).first(8), ElementsAre(1, 2, 3, 4, 5, 6, 7, kNone));
    EXPECT_THAT(std::span(long_ones.labels).subspan(16, 6), ElementsAre(1, 2, 3, 4, 5, kNone));
    EXPECT_EQ(long_ones.target_tokens, 12U);
    EXPECT_TRUE(long_ones.documents.empty());
    EXPECT_THAT(asked_->asked[1]->row_ids, ElementsAre(10));
    EXPECT_THAT(asked_->asked[2]->row_ids, ElementsAre(12));
    EXPECT_EQ(asked_->asked[2]->input_ids[0], 20);
    for (const auto deadline : asked_->deadlines) {
        EXPECT_LE(deadline, std::chrono::seconds(9)) << "one for all";
    }
    EXPECT_GE(asked_->deadlines[0], asked_->deadlines[2]);
}

TEST_F(DocumentTeacherTest, PutsTheAnswersWhereTheDocumentsLie) {
    const auto tokens = packed(2, 9, {{0, 0, 3}, {0, 3, 5}, {1, 0, 1}, {1, 1, 7}});
    const FetchResult<TeacherTargets> targets = ask(*teacher_, tokens);
    ASSERT_TRUE(targets);
    EXPECT_EQ(targets->rows, 2U);
    EXPECT_EQ(targets->columns, 9U);
    EXPECT_EQ(targets->width, 2U);
    EXPECT_EQ(targets->vocabulary, 7U);
    EXPECT_EQ(targets->wire_bytes, 3000U);
    std::vector<std::int32_t> expected(18, 0);
    for (const RowDocument& document : tokens->documents) {
        for (std::uint32_t t = 0; t < document.length; ++t) {
            expected[document.row * 9 + document.begin + t] = said(document.id, t);
        }
    }
    EXPECT_EQ(first_ids(*targets), expected);
    std::vector<std::byte> given(18, std::byte{1});
    given[8] = given[17] = std::byte{0};
    EXPECT_EQ(test::bytes_of(targets->loss_mask), given) << "the last position of a row is padding";
    // No more than it says beforehand: of the two arrays of entries, the tail and the mask.
    EXPECT_EQ(targets->held_bytes, 18U * (2 * 4 + 2 * 2 + 4 + 1));
}

TEST_F(DocumentTeacherTest, RowsOfOneDocumentAreAskedAboutTogetherAndWideEnough) {
    auto tokens = packed(2, 3, {{0, 0, 2}, {1, 0, 3}});
    tokens->documents.clear();
    const FetchResult<TeacherTargets> targets = ask(*teacher_, tokens);
    ASSERT_TRUE(targets);
    ASSERT_EQ(asked_->asked.size(), 1U);
    EXPECT_EQ(asked_->asked[0]->columns, 16U);
    EXPECT_THAT(asked_->asked[0]->row_ids, ElementsAre(100, 101));
    EXPECT_THAT(asked_->asked[0]->lengths, ElementsAre(2, 3));
    EXPECT_EQ(targets->columns, 3U);
    EXPECT_THAT(first_ids(*targets),
                ElementsAre(said(100, 0), said(100, 1), 0, said(101, 0), said(101, 1), said(101, 2)));
}

TEST_F(DocumentTeacherTest, PassesOnWhatIsWideEnoughAsItIs) {
    for (const std::uint32_t columns : {16U, kLength}) {
        auto tokens = packed(2, columns, {{0, 0, 2}, {1, 0, columns}});
        tokens->documents.clear();
        ASSERT_TRUE(ask(*teacher_, tokens));
        EXPECT_EQ(asked_->asked.back(), tokens);
    }
}

TEST_F(DocumentTeacherTest, AFailureIsThatOfTheWholeMicroBatch) {
    asked_->fails_at = 2;
    const auto failed = ask(*teacher_, packed(2, 9, {{0, 0, 3}, {0, 3, 5}, {1, 0, 1}, {1, 1, 7}}));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, FailureKind::overloaded);
    EXPECT_EQ(asked_->asked.size(), 2U);
}

TEST_F(DocumentTeacherTest, AnAnswerOfAnotherShapeIsRefused) {
    asked_->narrow = true;
    const auto refused = ask(*teacher_, packed(1, 8, {{0, 0, 4}, {0, 4, 4}}));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::bad_response);
    EXPECT_EQ(refused.error().message, "the teacher: the answer has rows for [2, 15] positions, asked were [2, 16]");
}

TEST_F(DocumentTeacherTest, SaysWhatItTakes) {
    const AnswerSize size = teacher_->answer_size(3, 8);
    EXPECT_EQ(size.max_wire_bytes, 4U * 8 * 10) << "a quarter of what is asked about may be padding";
    EXPECT_EQ(size.held_bytes, 3U * 8 * 100 + 3 * 8) << "and a mask";
    EXPECT_EQ(size.decode_bytes, 7U + 4 * 8 * 100) << "beside which the answers lie as they came";
}

TEST_F(DocumentTeacherTest, OfManyDocumentsAQuarterIsPaddingAtMost) {
    std::vector<Place> places;
    std::uint32_t begin = 0;
    for (std::uint32_t length = 1; length <= 90; ++length) {
        places.push_back({0, begin, length});
        begin += length;
    }
    const auto batches = batches_of_documents(*packed(1, begin, places), begin);
    EXPECT_LE(batches.size(), 9U);
    std::uint64_t documents = 0;
    for (const auto& batch : batches) {
        documents += batch->rows;
        EXPECT_EQ(batch->columns % 16, 0U);
        EXPECT_GE(static_cast<double>(batch->target_tokens), 0.75 * batch->rows * batch->lengths.front());
    }
    EXPECT_EQ(documents, 90U);
}

class RequestsOfDocuments : public ::testing::Test {
  protected:
    RequestsOfDocuments() {
        auto asked = std::make_unique<test::FakeTeacher>();
        asked_ = asked.get();
        asked_->decide = [](std::uint64_t, std::size_t) {
            return test::FakeTeacher::Fate{std::chrono::milliseconds(2), {}};
        };
        teacher_ = make_document_teacher(std::move(asked), kLength);
    }

    /// So many micro-batches of three requests each, all at once; how each ended.
    std::vector<FetchResult<EncodedAnswer>> ask(std::size_t micro_batches) {
        asio::io_context io;
        std::vector<FetchResult<EncodedAnswer>> ended;
        for (std::size_t i = 0; i < micro_batches; ++i) {
            const auto tokens = packed(2, 9, {{0, 0, 3}, {0, 3, 5}, {1, 0, 1}, {1, 1, 7}});
            asio::co_spawn(io, teacher_->fetch(0, tokens, std::chrono::seconds(30)),
                           [&ended](const std::exception_ptr& thrown, FetchResult<EncodedAnswer> result) {
                               ASSERT_EQ(thrown, nullptr);
                               ended.push_back(std::move(result));
                           });
        }
        io.run();
        return ended;
    }

    test::FakeTeacher* asked_;
    std::unique_ptr<TeacherSource> teacher_;
};

TEST_F(RequestsOfDocuments, GoOutTogetherAsFarAsTheLimitsAllow) {
    teacher_->set_concurrency_limits({8, {8}});
    EXPECT_EQ(ask(1).size(), 1U);
    EXPECT_EQ(asked_->max_in_flight, 3);
    EXPECT_EQ(asked_->asked.size(), 3U);
}

TEST_F(RequestsOfDocuments, AreNeverMoreThanAllTheSchedulerAllows) {
    struct Case {
        ConcurrencyLimits limits;
        int max_in_flight;
    };
    // Of four micro-batches, with twelve requests.
    for (const auto& [limits, max_in_flight] :
         {Case{{5, {5}}, 5}, Case{{1, {1}}, 1}, Case{{8, {2}}, 2}, Case{{20, {20}}, 12}}) {
        asked_->max_in_flight = 0;
        teacher_ = make_document_teacher(std::exchange(teacher_, nullptr), kLength);  // which has no slots yet
        teacher_->set_concurrency_limits(limits);
        EXPECT_EQ(ask(4).size(), 4U);
        EXPECT_EQ(asked_->max_in_flight, max_in_flight) << limits.all;
    }
}

TEST_F(RequestsOfDocuments, GoOutOneByOneBeforeTheLimitsAreKnown) {
    EXPECT_EQ(ask(2).size(), 2U);
    EXPECT_EQ(asked_->max_in_flight, 1);
}

TEST_F(RequestsOfDocuments, EndWithTheFirstThatFails) {
    teacher_->set_concurrency_limits({8, {8}});
    asked_->decide = [](std::uint64_t, std::size_t call) {
        const FetchError busy{FailureKind::overloaded, "busy", std::nullopt};
        return call == 2 ? test::FakeTeacher::Fate{std::chrono::milliseconds(1), busy}
                         : test::FakeTeacher::Fate{std::chrono::seconds(20), {}};
    };
    const auto ended = ask(1);
    ASSERT_EQ(ended.size(), 1U);
    ASSERT_FALSE(ended[0]);
    EXPECT_EQ(ended[0].error().message, "busy");
    EXPECT_EQ(asked_->in_flight, 0) << "nobody is left behind";
}

// To a store a document is a row: one that training on rows with several documents has filled serves rows of one.
TEST(DocumentTeacherStore, KeepsDocumentsWhateverRowTheyLieIn) {
    const test::TemporaryFolder folder;
    asio::io_context io;
    CachingTeacherOptions options;
    options.writer = open_store_writer(folder.path(), test::topk_manifest(14, 14)).value();
    auto asked = std::make_unique<AskedTeacher>();
    const auto& questions = asked->asked;
    const auto teacher =
        make_document_teacher(make_caching_teacher(io.get_executor(), std::move(asked), std::move(options)), 4);
    const auto first = ask(*teacher, packed(2, 4, {{0, 0, 2}, {0, 2, 2}, {1, 0, 4}, {1, 3, 1}}));
    ASSERT_FALSE(first) << "document 13 lies over document 12";
    const auto live = ask(*teacher, packed(2, 4, {{0, 0, 2}, {0, 2, 2}, {1, 0, 3}, {1, 3, 1}}));
    ASSERT_TRUE(live);
    const std::size_t sent = questions.size();
    // The same documents, in other rows.
    auto moved = packed(1, 4, {{0, 0, 2}, {0, 2, 1}});
    moved->documents[1].id = 13;
    const auto stored = ask(*teacher, moved);
    ASSERT_TRUE(stored);
    EXPECT_EQ(questions.size(), sent) << "the store had them";
    EXPECT_THAT(first_ids(*stored), ElementsAre(said(10, 0), said(10, 1), said(13, 0), 0));
}

/// Other documents for the teacher: document 10 + i has lengths[i] inputs 100·i, 100·i + 1, …
ReadDocument documents_of(std::vector<std::uint32_t> lengths) {
    return [lengths = std::move(lengths)](std::uint64_t document) {
        TokenBatch batch;
        batch.rows = 1;
        batch.columns = lengths.at(document - 10);
        for (std::uint32_t t = 0; t < batch.columns; ++t) {
            batch.input_ids.push_back(static_cast<std::int32_t>(100 * (document - 10) + t));
            batch.labels.push_back(t + 2 < batch.columns ? kIgnoredLabel : 1);
        }
        batch.lengths = {static_cast<std::int32_t>(batch.columns)};
        return batch;
    };
}

TEST(DocumentTeacherWithOwnDocuments, AsksAboutThemAndAlignsTheAnswersAtTheEnds) {
    const ReadDocument read = documents_of({6, 2});  // the first is longer than the student's, the second shorter
    auto asked = std::make_unique<AskedTeacher>();
    const AskedTeacher& seen = *asked;
    const auto teacher = make_document_teacher(std::move(asked), kLength, read);
    const auto answer = ask(*teacher, packed(1, 8, {{0, 0, 3}, {0, 3, 4}}));
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_EQ(seen.asked.size(), 2U) << "2 positions beside 6 would be padded to more than a quarter";
    EXPECT_THAT(seen.asked[0]->row_ids, ElementsAre(10));
    EXPECT_THAT(seen.asked[0]->lengths, ElementsAre(6));
    EXPECT_EQ(seen.asked[0]->target_tokens, 2U);
    EXPECT_EQ(seen.asked[0]->input_ids[5], 5);
    EXPECT_THAT(seen.asked[1]->row_ids, ElementsAre(11));
    EXPECT_EQ(seen.asked[1]->input_ids[1], 101);
    EXPECT_THAT(first_ids(*answer),
                ElementsAre(said(10, 3), said(10, 4), said(10, 5), 0, 0, said(11, 0), said(11, 1), 0));
    std::vector<int> mask;
    for (const std::byte one : answer->loss_mask.bytes) {
        mask.push_back(static_cast<int>(one));
    }
    EXPECT_THAT(mask, ElementsAre(1, 1, 1, 0, 0, 1, 1, 0));
}

TokenTable tokens_of(std::vector<std::string> bytes) {
    return {std::move(bytes), {}, {}, false};
}

TEST(DocumentTeacherWithOwnDocuments, MapsAnswersInOtherTokensToWhereBothHaveReadTheSameBytes) {
    const auto alignment = std::make_shared<const TokenAlignment>(tokens_of({"a", "b", "c", "x", "y", "z", "1", "2"}),
                                                                  tokens_of({"ab", "c", "y", "x", "z", "1", "2", "a"}));
    std::vector<AlignmentCounters> told;
    const auto teacher = make_document_teacher(std::make_unique<AskedTeacher>(), kLength, documents_of({2}), alignment,
                                               [&told](const AlignmentCounters& first) { told.push_back(first); });
    const auto answer = ask(*teacher, packed(1, 4, {{0, 0, 3}}));  // abc
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_TRUE(ask(*teacher, packed(1, 4, {{0, 0, 3}})));
    ASSERT_EQ(said(10, 0), 2);
    ASSERT_EQ(said(10, 1), 3);
    EXPECT_THAT(first_ids(*answer), ElementsAre(0, 4, 3, 0)) << "y and x";
    std::vector<int> mask;
    for (const std::byte one : answer->loss_mask.bytes) {
        mask.push_back(static_cast<int>(one));
    }
    EXPECT_THAT(mask, ElementsAre(0, 1, 1, 0));
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].positions, 3U);
    EXPECT_EQ(told[0].aligned, 2U);
    EXPECT_EQ(teacher->alignment()->positions, 6U);
    EXPECT_EQ(teacher->alignment()->mapped_mass, told[0].mapped_mass);
    EXPECT_GT(told[0].mapped_mass, 0);
}

TEST(DocumentTeacherWithOwnDocuments, MakesRoomForTheirLongestRow) {
    const auto teacher = make_document_teacher(std::make_unique<AskedTeacher>(), kLength, documents_of({6, 2}));
    const AskedTeacher plain;
    EXPECT_GE(teacher->answer_size(3, 8).decode_bytes, plain.answer_size(3, kLength).decode_bytes);
}

}  // namespace
}  // namespace distilld
