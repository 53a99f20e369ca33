#include <gtest/gtest.h>

#include <tuple>

#include "base/json_text.hpp"
#include "server/protocol/worker_protocol.hpp"
#include "tests/support/field_filler.hpp"

// Every event and every order, as the tables list them: what is added there is tested here.

namespace distilld {
namespace {

template <class Table>
struct TestTypes;
template <class... Rows>
struct TestTypes<std::tuple<Rows...>> {
    using type = ::testing::Types<typename Rows::type...>;
};
template <const auto& kTable>
using TypesOf = typename TestTypes<std::remove_cvref_t<decltype(kTable)>>::type;

std::string_view without_newline(const std::string& line) {
    return std::string_view(line).substr(0, line.size() - 1);
}

template <class T>
class EveryEvent : public ::testing::Test {};
TYPED_TEST_SUITE(EveryEvent, TypesOf<kWorkerEvents>, );

TYPED_TEST(EveryEvent, ComesBackFromALineWithEveryField) {
    const auto sent = test::filled<TypeParam>();
    const std::string line = encode(UpMessage(sent));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto received = decode_up(without_newline(line));
    ASSERT_TRUE(received) << received.error().message;
    ASSERT_TRUE(std::holds_alternative<TypeParam>(*received));
    EXPECT_EQ(to_text(write_fields(std::get<TypeParam>(*received))), to_text(write_fields(sent)));
    EXPECT_NE(to_text(write_fields(sent)), to_text(write_fields(TypeParam{})));
}

TYPED_TEST(EveryEvent, DescribesEveryMember) {
    EXPECT_EQ(test::described_fields<TypeParam>(), test::member_count<TypeParam>());
}

TYPED_TEST(EveryEvent, TravelsUnderTheNameOfItsRow) {
    const std::string line = encode(UpMessage(TypeParam{}));
    EXPECT_EQ(open_line(without_newline(line))->type, row_of<TypeParam>(kWorkerEvents).name);
}

template <class T>
class EveryOrder : public ::testing::Test {};
TYPED_TEST_SUITE(EveryOrder, TypesOf<kWorkerOrders>, );

TYPED_TEST(EveryOrder, ComesBackFromALineWithEveryField) {
    const auto sent = test::filled<TypeParam>();
    const std::string line = encode(DownMessage(sent));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto received = decode_down(without_newline(line));
    ASSERT_TRUE(received) << received.error().message;
    ASSERT_TRUE(std::holds_alternative<TypeParam>(*received));
    EXPECT_EQ(to_text(write_fields(std::get<TypeParam>(*received))), to_text(write_fields(sent)));
}

TYPED_TEST(EveryOrder, DescribesEveryMember) {
    EXPECT_EQ(test::described_fields<TypeParam>(), test::member_count<TypeParam>());
}

TEST(NestedFields, DescribeEveryMember) {
    EXPECT_EQ(test::described_fields<StageTimes>(), test::member_count<StageTimes>());
    EXPECT_EQ(test::described_fields<FetchCounters>(), test::member_count<FetchCounters>());
    EXPECT_EQ(test::described_fields<EndpointCounters>(), test::member_count<EndpointCounters>());
    EXPECT_EQ(test::described_fields<DurationCounts>(), test::member_count<DurationCounts>());
    EXPECT_EQ(test::described_fields<RequestDurations>(), test::member_count<RequestDurations>());
    EXPECT_EQ(test::described_fields<RunDurations>(), test::member_count<RunDurations>());
    EXPECT_EQ(test::described_fields<HelloMessage>(), test::member_count<HelloMessage>());
}

// What CONTRIBUTING says of adding an event and a field, done here.

struct ThrottledEvent {
    std::uint64_t step = 0;
    double celsius = 0;
};

template <class Visitor, Describes<ThrottledEvent> T>
void describe(Visitor& v, T& e) {
    v("step", e.step);
    v("celsius", e.celsius);
}

struct ProgressWithPower : ProgressEvent {
    double watts = 0;
};

template <class Visitor, Describes<ProgressWithPower> T>
void describe(Visitor& v, T& e) {
    using Known = std::conditional_t<std::is_const_v<T>, const ProgressEvent, ProgressEvent>;
    describe(v, static_cast<Known&>(e));
    v("watts", e.watts);
}

constexpr std::tuple kGrownEvents = std::tuple_cat(
    kUpMessages, std::tuple(EventRow<ThrottledEvent>{"throttled"}, EventRow<ProgressWithPower>{"power"}));

TEST(ANewEvent, IsSentOnceItHasAStructADescriptionAndARow) {
    const VariantOf<kGrownEvents> sent = ThrottledEvent{7, 96.5};
    const std::string line = encode_message<kGrownEvents>(sent);
    EXPECT_EQ(line, "{\"type\":\"throttled\",\"step\":7,\"celsius\":96.5}\n");
    const auto received = decode_message<kGrownEvents>(without_newline(line));
    ASSERT_TRUE(received) << received.error().message;
    EXPECT_EQ(std::get<ThrottledEvent>(*received).celsius, 96.5);
    EXPECT_FALSE(decode_up(without_newline(line)));  // a program that does not know it says so
}

TEST(ANewField, IsSentOnceItIsDescribed) {
    ProgressWithPower sent;
    sent.step = 3;
    sent.watts = 250;
    const std::string line = encode_message<kGrownEvents>(sent);
    const auto received = decode_message<kGrownEvents>(without_newline(line));
    ASSERT_TRUE(received) << received.error().message;
    EXPECT_EQ(std::get<ProgressWithPower>(*received).step, 3U);
    EXPECT_EQ(std::get<ProgressWithPower>(*received).watts, 250);
}

}  // namespace
}  // namespace distilld
