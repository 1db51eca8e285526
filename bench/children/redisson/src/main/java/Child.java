import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A child of the benchmark suite (see work/protocol.go): one JSON order per line on standard input, one
 * JSON result per line on standard output. With one member it uses RLock, with more RedissonRedLock. Work that
 * needs another kind has one member: RFairLock, RReadWriteLock, RMultiLock, RPermitExpirableSemaphore or RSemaphore (by
 * the name of the entry), RCountDownLatch.
 */
public final class Child {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** One client of all members. */
  private static final class Locker {
    final List<RedissonClient> clients = new ArrayList<>();

    Locker(JsonNode members) {
      for (JsonNode m : members) {
        Config c = new Config();
        c.useSingleServer().setAddress("redis://" + m.asText());
        if (shared != null) { // a hundred clients with threads of their own take a minute to start
          c.setEventLoopGroup(shared).setExecutor(executor);
          c.useSingleServer().setConnectionMinimumIdleSize(1);
        }
        clients.add(Redisson.create(c));
      }
    }

    @SuppressWarnings("deprecation")
    RLock lock(String name) {
      if (open.path("shape").asText().equals("in order")) return clients.get(0).getFairLock(name);
      if (clients.size() == 1) return clients.get(0).getLock(name);
      RLock[] all = new RLock[clients.size()];
      for (int i = 0; i < all.length; i++) all[i] = clients.get(i).getLock(name);
      return new RedissonRedLock(all);
    }

    Permits permits(String name) { return new Permits(clients.get(0), name); }

    RReadWriteLock readWrite(String name) { return clients.get(0).getReadWriteLock(name); }

    RLock set(String prefix, long first, int count) {
      RLock[] all = new RLock[count];
      for (int i = 0; i < count; i++) all[i] = clients.get(0).getLock(prefix + (first + i));
      return clients.get(0).getMultiLock(all);
    }
  }

  /** A semaphore: RSemaphore, or RPermitExpirableSemaphore, whose permits have ids and leases. */
  private static final class Permits {
    private final RSemaphore plain;
    private final RPermitExpirableSemaphore leased;

    Permits(RedissonClient client, String name) {
      boolean counter = open.path("entry").asText().equals("redisson-semaphore");
      plain = counter ? client.getSemaphore(name) : null;
      leased = counter ? null : client.getPermitExpirableSemaphore(name);
      if (counter) plain.trySetPermits(open.path("limit").asInt());
      else leased.trySetPermits(open.path("limit").asInt());
    }

    /** Returns null if the time is over. */
    String acquire(long waitMs) throws InterruptedException {
      if (plain != null) return plain.tryAcquire(Duration.ofMillis(waitMs)) ? "" : null;
      return leased.tryAcquire(waitMs, open.path("lease_ms").asLong(), TimeUnit.MILLISECONDS);
    }

    void release(String id) {
      if (plain != null) plain.release();
      else leased.release(id);
    }

    void delete() {
      if (plain != null) plain.delete();
      else leased.delete();
    }
  }

  /** What one caller saw. */
  private static final class Caller {
    final TreeMap<Long, Long> total = new TreeMap<>();
    final TreeMap<Long, Long> acquire = new TreeMap<>();
    final TreeMap<Long, Long> release = new TreeMap<>();
    final TreeMap<Long, Long> handoff = new TreeMap<>();
    final TreeMap<Long, Long> reading = new TreeMap<>();
    final TreeMap<Long, Long> writing = new TreeMap<>();
    long longestRead;
    long ops, all, errors, self, overlaps, writes, waitSum, waitMax;
    String sample;
    volatile boolean back;

    void failed(Exception e) {
      errors++;
      if (sample == null) sample = e.toString();
    }
  }

  /** The file that contenders share; see Storage in work/storage.go. */
  private static final class Storage {
    private static final VarHandle LONG = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private final ByteBuffer map;

    Storage(String path) throws Exception {
      try (RandomAccessFile f = new RandomAccessFile(path, "rw")) {
        map = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 64);
      }
    }

    long get(int at) { return (long) LONG.getVolatile(map, at); }

    void set(int at, long v) { LONG.setVolatile(map, at, v); }

    long swap(int at, long v) { return (long) LONG.getAndSet(map, at, v); }

    long add(int at, long v) { return (long) LONG.getAndAdd(map, at, v); }

    boolean swapIf(int at, long old, long v) { return LONG.compareAndSet(map, at, old, v); }
  }

  private static JsonNode open;
  private static EventLoopGroup shared;
  private static ExecutorService executor;
  private static final List<Locker> lockers = new ArrayList<>();

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // logging must not get into the results
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JsonNode order = JSON.readTree(line);
      ObjectNode result = JSON.createObjectNode();
      try {
        switch (order.path("op").asText()) {
          case "open" -> start(order, result);
          case "slice" -> slice(order, result);
          case "close" -> { }
          default -> throw new IllegalArgumentException("no order " + order.path("op"));
        }
        result.put("ok", true);
      } catch (Exception e) {
        result.put("ok", false).put("error", e.toString());
      }
      out.println(JSON.writeValueAsString(result));
      if (order.path("op").asText().equals("close")) break;
    }
    System.exit(0); // what is stuck does not keep the process
  }

  private static void start(JsonNode order, ObjectNode result) {
    open = order;
    int n = Math.max(1, order.path("clients").asInt());
    String work = order.path("work").asText();
    if (work.equals("permits") || work.equals("latch")) {
      shared = new NioEventLoopGroup(32);
      executor = Executors.newFixedThreadPool(16);
    }
    for (int i = 0; i < n; i++) lockers.add(new Locker(order.path("members")));
    String v = Redisson.class.getPackage().getImplementationVersion();
    result.put("version", "redisson " + (v == null ? "4.7.0" : v) + ", Java " + Runtime.version());
  }

  private static void slice(JsonNode order, ObjectNode result) throws Exception {
    long warm = order.path("warm_ms").asLong() * 1_000_000L;
    long slice = order.path("slice_ms").asLong() * 1_000_000L;
    long before = 0, writes = 0, overlaps = 0;
    if (warm > 0) {
      Caller[] warmed = pass(order, warm, "w", result);
      if (warmed == null) return;
      for (Caller c : warmed) {
        before += c.all;
        writes += c.writes;
        overlaps += c.overlaps;
      }
    }
    long cpu = cpu();
    Caller[] callers = pass(order, slice, "m", result);
    result.put("cpu", cpu() - cpu).put("elapsed", result.path("active").asLong(slice)).put("allocs", -1);
    if (callers == null) return;
    long ops = 0, done = 0, errors = 0, self = 0, waitSum = 0, waitMax = 0, longestRead = 0;
    ArrayNode perCaller = JSON.createArrayNode();
    ArrayNode samples = JSON.createArrayNode();
    TreeMap<Long, Long> total = new TreeMap<>(), acquire = new TreeMap<>(), release = new TreeMap<>(), handoff = new TreeMap<>();
    TreeMap<Long, Long> reading = new TreeMap<>(), writing = new TreeMap<>();
    for (Caller c : callers) {
      ops += c.ops;
      done += c.all;
      errors += c.errors;
      self += c.self;
      writes += c.writes;
      overlaps += c.overlaps;
      waitSum += c.waitSum;
      waitMax = Math.max(waitMax, c.waitMax);
      perCaller.add(c.ops);
      if (c.sample != null && samples.size() < 3) samples.add(c.sample);
      c.total.forEach((k, v) -> total.merge(k, v, Long::sum));
      c.acquire.forEach((k, v) -> acquire.merge(k, v, Long::sum));
      c.release.forEach((k, v) -> release.merge(k, v, Long::sum));
      c.handoff.forEach((k, v) -> handoff.merge(k, v, Long::sum));
      c.reading.forEach((k, v) -> reading.merge(k, v, Long::sum));
      c.writing.forEach((k, v) -> writing.merge(k, v, Long::sum));
      longestRead = Math.max(longestRead, c.longestRead);
    }
    result.put("ops", ops).put("done", done).put("all_ops", done + before).put("errors", errors).put("self", self);
    result.put("writes", writes).put("overlaps", overlaps).put("wait_sum", waitSum).put("wait_max", waitMax);
    result.put("longest_read", longestRead);
    result.set("reading", pairs(reading));
    result.set("writing", pairs(writing));
    result.set("per_caller", perCaller);
    result.set("samples", samples);
    result.set("total", pairs(total));
    result.set("acquire", pairs(acquire));
    result.set("release", pairs(release));
    result.set("handoff", pairs(handoff));
  }

  private static final long DRAIN = 3_000_000_000L;

  /** Runs all callers for so long. Returns null if some are stuck. */
  private static Caller[] pass(JsonNode order, long length, String part, ObjectNode result) throws Exception {
    int n = open.path("callers").asInt(1);
    String work = open.path("work").asText();
    Storage store = work.equals("uncontended") ? null : new Storage(order.path("storage").asText());
    if (work.equals("letin")) return letIn(order, store, length, result);
    if (work.equals("latch")) return latch(order, part, length, result);
    int limit = open.path("limit").asInt();
    Permits permits = limit == 0 ? null : lockers.get(0).permits(order.path("prefix").asText() + part + "permits");
    List<String> taken = new ArrayList<>();
    if (limit > 0 && !work.equals("permits")) for (int i = 0; i < limit / 2; i++) taken.add(permits.acquire(DRAIN / 1_000_000));
    boolean further = open.path("ask").asText().equals("further");
    RLock read = lockers.get(0).readWrite(order.path("prefix").asText() + part + "0:0").readLock();
    if (further) read.lock(1, TimeUnit.MINUTES); // by this thread; the callers read beside it
    Caller[] callers = new Caller[n];
    CountDownLatch ready = new CountDownLatch(n), done = new CountDownLatch(n);
    CountDownLatch go = new CountDownLatch(1);
    long[] began = new long[1];
    for (int i = 0; i < n; i++) {
      Caller c = callers[i] = new Caller();
      int number = i;
      Locker locker = lockers.get(i % lockers.size());
      Thread t = new Thread(() -> {
        ready.countDown();
        try {
          go.await();
          if (work.equals("contended")) contend(c, locker, order, order.path("who").asInt() + number, store, began[0], length);
          else if (work.equals("permits")) permits(c, locker, order.path("prefix").asText() + part + "permits", store, began[0], length);
          else if (work.equals("readwrite")) readWrite(c, locker, order, number, store, began[0], length);
          else loop(c, locker, order, order.path("prefix").asText() + part + number + ":", began[0], length);
        } catch (InterruptedException e) {
          return;
        }
        c.back = true;
        done.countDown();
      });
      t.setDaemon(true);
      t.start();
    }
    ready.await();
    began[0] = System.nanoTime();
    go.countDown();
    boolean back = done.await(length + DRAIN + 1_000_000_000L, TimeUnit.NANOSECONDS);
    if (further) read.unlock();
    for (String id : taken) permits.release(id);
    if (permits != null) permits.delete();
    if (back) return callers;
    int stuck = 0;
    for (Caller c : callers) if (!c.back) stuck++;
    result.put("stuck", stuck);
    return null;
  }

  private static void loop(Caller c, Locker locker, JsonNode order, String prefix, long began, long length) {
    long lease = open.path("lease_ms").asLong();
    int names = open.path("names").asInt();
    int warm = open.path("warm").asInt() == 0 ? 0 : Math.max(1, open.path("warm").asInt() / open.path("callers").asInt(1));
    if (open.path("limit").asInt() > 0) {
      room(c, locker.permits(prefix.substring(0, prefix.length() - 2) + "permits"), began, length);
      return;
    }
    for (long i = 0; ; i++) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      RLock lock = switch (open.path("ask").asText()) {
        case "write" -> locker.readWrite(prefix + i).writeLock();
        case "read" -> locker.readWrite(prefix + i).readLock();
        case "further" -> locker.readWrite(prefix + 0).readLock();
        default -> names > 0 ? locker.set(prefix, i * names, names) : locker.lock(prefix + (warm > 0 ? i % warm : i));
      };
      try {
        if (!lock.tryLock((length - t0 + DRAIN) / 1_000_000, lease, TimeUnit.MILLISECONDS)) throw new IllegalStateException("not acquired in time");
        long t1 = System.nanoTime() - began;
        lock.unlock();
        long t2 = System.nanoTime() - began;
        c.all++;
        if (t2 <= length) c.ops++;
        count(c.total, t2 - t0);
        count(c.acquire, t1 - t0);
        count(c.release, t2 - t1);
      } catch (Exception e) {
        c.failed(e);
        count(c.total, System.nanoTime() - began - t0);
      }
    }
  }

  /** One permit after the other of a semaphore that has some left. */
  private static void room(Caller c, Permits permits, long began, long length) {
    for (;;) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      try {
        String id = permits.acquire((length - t0 + DRAIN) / 1_000_000);
        if (id == null) throw new IllegalStateException("not acquired in time");
        long t1 = System.nanoTime() - began;
        permits.release(id);
        long t2 = System.nanoTime() - began;
        c.all++;
        if (t2 <= length) c.ops++;
        count(c.total, t2 - t0);
        count(c.acquire, t1 - t0);
        count(c.release, t2 - t1);
      } catch (Exception e) {
        c.failed(e);
        count(c.total, System.nanoTime() - began - t0);
      }
    }
  }

  /** All want one of the permits of one name. See work/permits.go. */
  private static void permits(Caller c, Locker locker, String name, Storage store, long began, long length) throws InterruptedException {
    long hold = open.path("hold_us").asLong() * 1000, pause = open.path("pause_us").asLong() * 1000;
    int limit = open.path("limit").asInt();
    Permits permits = locker.permits(name);
    for (;;) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      try {
        String id = permits.acquire(Math.max(1, (length - t0) / 1_000_000));
        long t1 = System.nanoTime() - began;
        c.waitMax = Math.max(c.waitMax, t1 - t0);
        if (id == null) {
          if (t1 >= length - 1_000_000) return;
          continue;
        }
        if (store.add(32, 1) >= limit) c.overlaps++;
        sleep(hold);
        store.add(32, -1);
        c.all++;
        c.waitSum += t1 - t0;
        long t2 = System.nanoTime() - began;
        permits.release(id);
        long t3 = System.nanoTime() - began;
        if (t3 <= length) c.ops++;
        count(c.total, t3 - t0);
        count(c.acquire, t1 - t0);
        count(c.release, t3 - t2);
      } catch (InterruptedException e) {
        throw e;
      } catch (Exception e) {
        c.failed(e);
      }
      sleep(pause);
    }
  }

  /** Half of the callers wait for a latch, the others count it down. See work/latch.go. */
  private static Caller[] latch(JsonNode order, String part, long length, ObjectNode result) throws Exception {
    int n = open.path("callers").asInt(), half = n / 2, arrivals = open.path("count").asInt();
    if (part.equals("w")) arrivals = Math.max(arrivals / 10, n);
    Caller[] callers = new Caller[n];
    for (int i = 0; i < n; i++) callers[i] = new Caller();
    ExecutorService pool = Executors.newFixedThreadPool(n, r -> {
      Thread t = new Thread(r);
      t.setDaemon(true);
      return t;
    });
    long begin = System.nanoTime(), end = begin + length, active = 0;
    int round = 0;
    do {
      String name = order.path("prefix").asText() + part + "latch:" + round++;
      int total = arrivals;
      lockers.get(0).clients.get(0).getCountDownLatch(name).trySetCount(total);
      AtomicLong invoked = new AtomicLong();
      long[] last = new long[n], open = new long[n];
      CountDownLatch waiting = new CountDownLatch(half), go = new CountDownLatch(1), out = new CountDownLatch(n);
      for (int i = 0; i < n; i++) {
        int number = i;
        Caller c = callers[i];
        RCountDownLatch l = lockers.get(i % lockers.size()).clients.get(0).getCountDownLatch(name);
        pool.execute(() -> {
          try {
            if (number >= half) {
              waiting.countDown();
              if (!l.await(15, TimeUnit.SECONDS)) throw new IllegalStateException("not open within 15 s");
              open[number] = System.nanoTime();
              if (invoked.get() < total) c.overlaps++;
            } else {
              go.await();
              for (int k = total / half + (number < total % half ? 1 : 0); k > 0; k--) {
                invoked.incrementAndGet();
                last[number] = System.nanoTime();
                l.countDown();
                count(c.release, System.nanoTime() - last[number]);
                c.ops++;
                c.all++;
              }
            }
          } catch (Exception e) {
            c.failed(e);
          }
          c.back = true;
          out.countDown();
        });
      }
      waiting.await();
      sleep(SETTLE);
      long t0 = System.nanoTime();
      go.countDown();
      if (!out.await(20, TimeUnit.SECONDS)) {
        result.put("stuck", out.getCount());
        return null;
      }
      active += System.nanoTime() - t0;
      long lastStart = Long.MIN_VALUE, lastOpen = Long.MIN_VALUE;
      for (int i = 0; i < half; i++) lastStart = Math.max(lastStart, last[i]);
      for (int i = half; i < n; i++) {
        if (open[i] == 0) continue;
        count(callers[i].acquire, open[i] - lastStart);
        lastOpen = Math.max(lastOpen, open[i]);
      }
      if (lastOpen > lastStart) count(callers[half].total, lastOpen - lastStart);
      lockers.get(0).clients.get(0).getCountDownLatch(name).delete();
    } while (!part.equals("w") && System.nanoTime() < end);
    pool.shutdown();
    result.put("active", active);
    return callers;
  }

  private static void contend(Caller c, Locker locker, JsonNode order, int who, Storage store, long began, long length) throws InterruptedException {
    Random random = new Random(who);
    long lease = open.path("lease_ms").asLong();
    long hold = open.path("hold_us").asLong() * 1000, pause = open.path("pause_us").asLong() * 1000;
    RLock lock = locker.lock(order.path("prefix").asText() + "hot");
    for (;;) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      try {
        boolean got = lock.tryLock(Math.max(1, (length - t0) / 1_000_000), lease, TimeUnit.MILLISECONDS);
        long t1 = System.nanoTime() - began;
        c.waitMax = Math.max(c.waitMax, t1 - t0);
        if (!got) {
          if (t1 >= length - 1_000_000) return;
          continue;
        }
        long last = store.get(16), since = System.nanoTime() - store.get(24);
        boolean overlap = store.swap(8, who + 1) != 0;
        long seen = store.get(0);
        long h = open.path("random").asBoolean() && hold > 0 ? (long) (random.nextDouble() * hold) : hold;
        if (h > 0) Thread.sleep(h / 1_000_000, (int) (h % 1_000_000));
        store.set(0, seen + 1);
        overlap |= !store.swapIf(8, who + 1, 0);
        store.set(24, System.nanoTime());
        store.set(16, who + 1);
        c.writes++;
        c.all++;
        if (overlap) c.overlaps++;
        if (last == who + 1) c.self++;
        else if (last != 0) count(c.handoff, since);
        c.waitSum += t1 - t0;
        lock.unlock();
        long t2 = System.nanoTime() - began;
        if (t2 <= length) c.ops++;
        count(c.total, t2 - t0);
        count(c.acquire, t1 - t0);
        count(c.release, t2 - t1);
      } catch (InterruptedException e) {
        throw e;
      } catch (Exception e) {
        c.failed(e);
      }
      if (pause > 0) Thread.sleep(pause / 1_000_000);
    }
  }

  /** The first callers only write; the others read so many percent of the time. See work/readwrite.go. */
  private static void readWrite(Caller c, Locker locker, JsonNode order, int number, Storage store, long began, long length) throws InterruptedException {
    int who = order.path("who").asInt() + number;
    Random random = new Random(who);
    long lease = open.path("lease_ms").asLong();
    long hold = open.path("hold_us").asLong() * 1000, pause = open.path("pause_us").asLong() * 1000;
    boolean writer = number < open.path("writers").asInt();
    RReadWriteLock lock = locker.readWrite(order.path("prefix").asText() + "hot");
    for (;;) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      boolean read = !writer && random.nextInt(100) < open.path("reads").asInt();
      RLock side = read ? lock.readLock() : lock.writeLock();
      try {
        boolean got = side.tryLock(Math.max(1, (length - t0) / 1_000_000), lease, TimeUnit.MILLISECONDS);
        long t1 = System.nanoTime() - began;
        c.waitMax = Math.max(c.waitMax, t1 - t0);
        if (!got) {
          if (t1 < length - 1_000_000) continue;
          if (!read) count(c.writing, t1 - t0); // a lower bound
          return;
        }
        boolean overlap;
        if (read) {
          store.add(32, 1);
          overlap = store.get(8) != 0;
          long seen = store.get(0);
          sleep(hold);
          overlap |= store.get(8) != 0 || store.get(0) != seen;
          store.add(32, -1);
          c.longestRead = Math.max(c.longestRead, System.nanoTime() - began - t1);
          count(c.reading, t1 - t0);
        } else {
          overlap = store.swap(8, who + 1) != 0 || store.get(32) != 0;
          long seen = store.get(0);
          sleep(hold);
          store.set(0, seen + 1);
          overlap |= store.get(32) != 0;
          overlap |= !store.swapIf(8, who + 1, 0);
          count(c.writing, t1 - t0);
          c.writes++;
        }
        c.all++;
        if (overlap) c.overlaps++;
        c.waitSum += t1 - t0;
        long t2 = System.nanoTime() - began;
        side.unlock();
        long t3 = System.nanoTime() - began;
        if (t3 <= length) c.ops++;
        count(c.total, t3 - t0);
        count(c.acquire, t1 - t0);
        count(c.release, t3 - t2);
      } catch (InterruptedException e) {
        throw e;
      } catch (Exception e) {
        c.failed(e);
      }
      if (writer) sleep(pause);
    }
  }

  private static final long SETTLE = 60_000_000;

  /** The first caller writes, and releases when the others wait to read. See work/readwrite.go. */
  private static Caller[] letIn(JsonNode order, Storage store, long length, ObjectNode result) throws Exception {
    int n = open.path("callers").asInt();
    long lease = open.path("lease_ms").asLong();
    Caller[] callers = new Caller[n];
    for (int i = 0; i < n; i++) callers[i] = new Caller();
    Caller writer = callers[0];
    long end = System.nanoTime() + length;
    ExecutorService pool = Executors.newFixedThreadPool(n - 1, r -> {
      Thread t = new Thread(r);
      t.setDaemon(true);
      return t;
    });
    String name = order.path("prefix").asText() + "hot";
    do {
      RLock write = lockers.get(0).readWrite(name).writeLock();
      write.lock(lease, TimeUnit.MILLISECONDS);
      boolean overlap = store.swap(8, 1) != 0 || store.get(32) != 0;
      long seen = store.get(0);
      long[] at = new long[n];
      CountDownLatch asked = new CountDownLatch(n - 1), in = new CountDownLatch(n - 1), out = new CountDownLatch(n - 1);
      for (int i = 1; i < n; i++) {
        int number = i;
        Caller c = callers[i];
        Locker locker = lockers.get(i % lockers.size());
        pool.execute(() -> {
          asked.countDown();
          RLock read = locker.readWrite(name).readLock();
          try {
            boolean got = read.tryLock(DRAIN / 1_000_000, lease, TimeUnit.MILLISECONDS);
            at[number] = System.nanoTime();
            if (!got) throw new IllegalStateException("not let in within 3 s");
            store.add(32, 1);
            boolean bad = store.get(8) != 0;
            in.countDown();
            in.await();
            store.add(32, -1);
            read.unlock();
            c.ops++;
            c.all++;
            if (bad) c.overlaps++;
          } catch (Exception e) {
            c.failed(e);
            in.countDown();
          }
          out.countDown();
        });
      }
      asked.await();
      sleep(SETTLE);
      store.set(0, seen + 1);
      overlap |= store.get(32) != 0;
      overlap |= !store.swapIf(8, 1, 0);
      long began = System.nanoTime(), last = 0;
      write.unlock();
      writer.writes++;
      if (overlap) writer.overlaps++;
      if (!out.await(2 * DRAIN, TimeUnit.NANOSECONDS)) {
        result.put("stuck", out.getCount());
        return null;
      }
      for (int i = 1; i < n; i++) {
        if (at[i] == 0) continue;
        count(callers[i].acquire, at[i] - began);
        last = Math.max(last, at[i] - began);
      }
      count(writer.total, last);
    } while (System.nanoTime() < end);
    pool.shutdown();
    return callers;
  }

  private static void sleep(long ns) throws InterruptedException {
    if (ns > 0) Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000));
  }

  /** Three digits are enough. */
  private static void count(TreeMap<Long, Long> h, long ns) {
    long v = Math.max(ns, 1), unit = 1;
    while (v / unit >= 1000) unit *= 10;
    h.merge(v / unit * unit, 1L, Long::sum);
  }

  private static ArrayNode pairs(Map<Long, Long> h) {
    ArrayNode out = JSON.createArrayNode();
    h.forEach((k, v) -> out.add(JSON.createArrayNode().add(k).add(v)));
    return out;
  }

  private static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
