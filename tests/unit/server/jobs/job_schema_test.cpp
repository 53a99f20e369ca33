#include "server/jobs/store/job_schema.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/jobs/store/sqlite_job_store.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

class JobSchemaTest : public ::testing::Test {
  protected:
    std::filesystem::path file() const { return folder_ / "jobs.sqlite"; }
    std::int64_t ask(const char* sql) const { return sqlite::Database(file()).query_integer(sql); }
    test::TemporaryFolder folder_;
};

TEST_F(JobSchemaTest, AnInterruptedCreationLeavesNothing) {
    {
        sqlite::Database database(file());
        sqlite::Transaction transaction(database);
        database.execute("CREATE TABLE half (x)");
        // As a process that ends in between: nothing is committed.
    }
    EXPECT_EQ(ask("SELECT count(*) FROM sqlite_master"), 0);
    ASSERT_TRUE(open_sqlite_job_store(file()));
    EXPECT_EQ(ask("PRAGMA user_version"), 12);
    ASSERT_TRUE(open_sqlite_job_store(file())) << "and is opened again";
}

TEST_F(JobSchemaTest, RefusesFilesOfOtherVersionsAndLeavesThemAsTheyAre) {
    ASSERT_TRUE(open_sqlite_job_store(file()));
    for (const auto& [version, age] : {std::pair(11, "an older"), std::pair(13, "a newer")}) {
        sqlite::Database(file()).execute(("PRAGMA user_version = " + std::to_string(version)).c_str());
        const auto opened = open_sqlite_job_store(file());
        ASSERT_FALSE(opened);
        EXPECT_EQ(opened.error().message, file().string() + ": was written by " + age +
                                              " version of distilld (schema " + std::to_string(version) +
                                              ", this one reads 12)");
        EXPECT_EQ(ask("PRAGMA user_version"), version);
    }
}

}  // namespace
}  // namespace distilld
