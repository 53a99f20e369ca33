#include "server/openai/file_store.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <string>

#include "server/jobs/store/sqlite_job_store.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::openai {
namespace {

constexpr const char* kHead =
    "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n"
    "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n";
constexpr const char* kTail = "\r\n--b--\r\n";

class FileStoreTest : public ::testing::Test {
  protected:
    [[nodiscard]] std::shared_ptr<FileStore> open(std::uint64_t space) const {
        return FileStore::open(folder_ / "jobs.sqlite", folder_ / "files", space).value();
    }
    template <class T>
    T wait(boost::asio::awaitable<T> work) {
        auto done = boost::asio::co_spawn(context_, std::move(work), boost::asio::use_future);
        context_.restart();
        context_.run();
        return done.get();
    }
    /// Nothing: there was no room.
    std::optional<UploadedFile> sent(FileStore& store, std::size_t bytes) {
        const auto upload = store.begin_upload("b");
        const auto taken = upload->take(kHead + std::string(bytes, 'x') + kTail);
        if (!taken) {
            EXPECT_TRUE(upload->no_room()) << taken.error().message;
            return std::nullopt;
        }
        auto file = upload->finish().value();
        wait(store.add(upload, file));
        return file;
    }
    [[nodiscard]] std::size_t folders() const { return test::file_count(folder_ / "files"); }

    test::TemporaryFolder folder_;
    std::unique_ptr<JobStore> jobs_ = open_sqlite_job_store(folder_ / "jobs.sqlite").value();
    boost::asio::io_context context_;
};

TEST_F(FileStoreTest, RemovalMakesRoomForAnother) {
    const auto store = open(100);
    const auto first = sent(*store, 60);
    ASSERT_TRUE(first);
    EXPECT_FALSE(sent(*store, 41));
    EXPECT_EQ(folders(), 1U) << "nothing of the refused one is left";
    EXPECT_TRUE(sent(*store, 40)) << "what was refused takes no room";
    EXPECT_FALSE(sent(*store, 1));
    EXPECT_EQ(wait(store->remove(first->id, {})).kind, FileRemoval::Kind::removed);
    EXPECT_TRUE(sent(*store, 60));
    EXPECT_EQ(wait(store->remove("file-none", {})).kind, FileRemoval::Kind::not_found);
    EXPECT_FALSE(sent(*store, 1)) << "removing nothing makes no room";
}

TEST_F(FileStoreTest, FilesOfTheLastTimeTakeTheirRoom) {
    ASSERT_TRUE(sent(*open(100), 60));
    EXPECT_FALSE(sent(*open(100), 41));
    EXPECT_FALSE(sent(*open(50), 1)) << "a lower bound holds for what is sent from now on";
    EXPECT_TRUE(sent(*open(100), 40));
}

TEST_F(FileStoreTest, AFileIsKeptWhileAJobReadsItThatHasNotEnded) {
    const auto store = open(1000);
    for (const auto& [name, state] : kEnumNames<api::JobState>) {
        const auto file = sent(*store, 10);
        StoredJob reader;
        reader.job.id = std::string("job-") + name;
        reader.job.state = state;
        reader.job.resolved_spec_json = R"({"dataset":{"train":")" + store->path_of(file->id).string() + R"("}})";
        jobs_->create(reader);
        const auto removal = wait(store->remove(file->id, {}));
        EXPECT_EQ(removal.kind, api::is_terminal(state) ? FileRemoval::Kind::removed : FileRemoval::Kind::in_use)
            << name;
        EXPECT_EQ(removal.job_id, api::is_terminal(state) ? "" : reader.job.id);
        EXPECT_EQ(wait(store->remove(file->id, {reader.job.id})).kind,
                  api::is_terminal(state) ? FileRemoval::Kind::not_found : FileRemoval::Kind::removed);
    }
}

TEST_F(FileStoreTest, AnUploadThatWasNotAddedLeavesNothing) {
    const auto store = open(100);
    {
        const auto upload = store->begin_upload("b");
        ASSERT_TRUE(upload->take(kHead + std::string(70, 'x') + kTail));
        EXPECT_FALSE(store->begin_upload("b")->has_room(31)) << "bytes hold room as soon as they came";
        ASSERT_TRUE(upload->finish());
        EXPECT_EQ(folders(), 1U);
    }
    EXPECT_EQ(folders(), 0U);
    EXPECT_TRUE(sent(*store, 100));
}

}  // namespace
}  // namespace distilld::openai
