import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
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
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A child of the benchmark suite (see work/protocol.go): one JSON order per line on standard input, one
 * JSON result per line on standard output. With one member it uses RLock, with more RedissonRedLock.
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
        clients.add(Redisson.create(c));
      }
    }

    @SuppressWarnings("deprecation")
    RLock lock(String name) {
      if (clients.size() == 1) return clients.get(0).getLock(name);
      RLock[] all = new RLock[clients.size()];
      for (int i = 0; i < all.length; i++) all[i] = clients.get(i).getLock(name);
      return new RedissonRedLock(all);
    }
  }

  /** What one caller saw. */
  private static final class Caller {
    final TreeMap<Long, Long> total = new TreeMap<>();
    final TreeMap<Long, Long> acquire = new TreeMap<>();
    final TreeMap<Long, Long> release = new TreeMap<>();
    final TreeMap<Long, Long> handoff = new TreeMap<>();
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

    boolean swapIf(int at, long old, long v) { return LONG.compareAndSet(map, at, old, v); }
  }

  private static JsonNode open;
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
    int n = order.path("shape").asText().equals("separate") ? order.path("callers").asInt() : 1;
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
    result.put("cpu", cpu() - cpu).put("elapsed", slice).put("allocs", -1);
    if (callers == null) return;
    long ops = 0, done = 0, errors = 0, self = 0, waitSum = 0, waitMax = 0;
    ArrayNode perCaller = JSON.createArrayNode();
    ArrayNode samples = JSON.createArrayNode();
    TreeMap<Long, Long> total = new TreeMap<>(), acquire = new TreeMap<>(), release = new TreeMap<>(), handoff = new TreeMap<>();
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
    }
    result.put("ops", ops).put("done", done).put("all_ops", done + before).put("errors", errors).put("self", self);
    result.put("writes", writes).put("overlaps", overlaps).put("wait_sum", waitSum).put("wait_max", waitMax);
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
    boolean contended = open.path("work").asText().equals("contended");
    Storage store = contended ? new Storage(order.path("storage").asText()) : null;
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
          if (contended) contend(c, locker, order, order.path("who").asInt() + number, store, began[0], length);
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
    if (done.await(length + DRAIN + 1_000_000_000L, TimeUnit.NANOSECONDS)) return callers;
    int stuck = 0;
    for (Caller c : callers) if (!c.back) stuck++;
    result.put("stuck", stuck);
    return null;
  }

  private static void loop(Caller c, Locker locker, JsonNode order, String prefix, long began, long length) {
    long lease = open.path("lease_ms").asLong();
    int warm = open.path("warm").asInt() == 0 ? 0 : Math.max(1, open.path("warm").asInt() / open.path("callers").asInt(1));
    for (long i = 0; ; i++) {
      long t0 = System.nanoTime() - began;
      if (t0 >= length) return;
      RLock lock = locker.lock(prefix + (warm > 0 ? i % warm : i));
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
