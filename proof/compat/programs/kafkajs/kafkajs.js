// kafkajs: node kafkajs.js BOOTSTRAP PREFIX. Says "ok TEST" or "FAIL TEST: WHY" for each test, which are made in their order.
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const [, , bootstrap, prefix] = process.argv
const COUNT = 3000
const PARTITIONS = 3
const BEGAN_MS = 1700000000000
const topic = `${prefix}-main`
const group = `${prefix}-group`
const kafka = new Kafka({ brokers: bootstrap.split(','), clientId: 'compat', logLevel: logLevel.ERROR })
const admin = kafka.admin()

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const key = n => (n % 10 === 0 ? null : n % 10 === 1 ? '' : `k${n % 100}`)
const value = n => (n % 50 === 7 ? null : n % 50 === 8 ? '' : `v${n}`)
const text = bytes => (bytes === null ? null : bytes.toString())

function expect (holds, seen) {
  if (!holds) throw new Error(seen)
}

async function test (name, what) {
  try {
    await what()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`FAIL ${name}: ${error.name}: ${error.message}`)
    console.log(error.stack)
  }
}

async function until (holds, seen, seconds = 60) {
  const deadline = Date.now() + seconds * 1000
  while (!holds()) {
    expect(Date.now() < deadline, `not within ${seconds} s: ${seen()}`)
    await sleep(50)
  }
}

// Read as a member of a group, from what it has committed, until enough messages are there.
async function read (groupId, name, count, more = async () => {}) {
  const consumer = kafka.consumer({ groupId })
  const found = []
  let crash = ''
  consumer.on(consumer.events.CRASH, ({ payload }) => { crash = String(payload.error) })
  await consumer.connect()
  await consumer.subscribe({ topics: [name], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { found.push({ partition, ...message }) } })
  try {
    await more(consumer)
    await until(() => found.length >= count, () => `${found.length} of ${count} messages; ${crash}`)
    await sleep(500) // would there be more?
  } finally {
    await consumer.disconnect()
  }
  expect(found.length === count, `${found.length} messages, expected ${count}`)
  return found
}

async function produce () {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  let n = 0
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]) {
    const messages = []
    for (let i = 0; i < COUNT / 3; i++, n++) {
      const headers = { n: String(n), several: ['a', 'b'], empty: '' }
      messages.push({ partition: n % PARTITIONS, key: key(n), value: value(n), timestamp: String(BEGAN_MS + n), headers })
    }
    const answers = await producer.send({ topic, messages, compression, acks: -1 })
    expect(answers.every(one => one.errorCode === 0), JSON.stringify(answers))
  }
  await producer.disconnect()
}

async function readAsGroup () {
  const last = {}
  for (const one of await read(group, topic, COUNT)) {
    const n = +one.headers.n.toString()
    const isRight = text(one.key) === key(n) && text(one.value) === value(n) && +one.timestamp === BEGAN_MS + n &&
      one.headers.several.map(text).join() === 'a,b' && n > (last[one.partition] ?? -1)
    expect(isRight, `message ${n} is ${JSON.stringify(one)}`)
    last[one.partition] = n
  }
}

async function resumeAndSeek () {
  await read(group, topic, 0)
  const found = await read(group, topic, 100, async consumer => consumer.seek({ topic, partition: 1, offset: '900' }))
  expect(found[0].partition === 1 && found[0].offset === '900', `the first is ${found[0].partition}/${found[0].offset}`)
}

async function offsetsByTime () {
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, BEGAN_MS + 1500)
  expect(found.length === PARTITIONS && found.every(one => one.offset === '500'), JSON.stringify(found))
}

async function committed (groupId, name) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [name] })
  return Object.fromEntries(found.partitions.map(one => [one.partition, one.offset]))
}

async function groups () {
  const described = await admin.describeGroups([group])
  expect(described.groups[0].state === 'Empty', described.groups[0].state)
  expect((await admin.listGroups()).groups.some(one => one.groupId === group), 'it is not listed')
  await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '7' }] })
  const found = await committed(group, topic)
  expect(found[0] === '7' && found[1] === '1000', JSON.stringify(found))
  await admin.resetOffsets({ groupId: group, topic, earliest: true })
  await admin.deleteGroups([group])
  expect(!(await admin.listGroups()).groups.some(one => one.groupId === group), 'it is listed after its deletion')
}

async function transactions () {
  const name = `${prefix}-transactions`
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 1 }] })
  const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (let round = 0; round < 4; round++) {
    const transaction = await producer.transaction()
    const messages = Array.from({ length: 50 }, (_, i) => ({ value: `${round}-${i}` }))
    await transaction.send({ topic: name, messages })
    const offsets = { topics: [{ topic, partitions: [{ partition: 0, offset: String(round * 10 + 1) }] }] }
    await transaction.sendOffsets({ consumerGroupId: name, ...offsets })
    if (round % 2 === 0) await transaction.commit()
    else await transaction.abort()
  }
  await producer.disconnect()
  const rounds = new Set((await read(`${name}-reader`, name, 100)).map(one => text(one.value)[0]))
  expect([...rounds].join() === '0,2', `read are rounds ${[...rounds]}`)
  expect((await committed(name, topic))[0] === '21', JSON.stringify(await committed(name, topic)))
}

// A consumer whose offset is out of range goes on at the beginning.
async function outOfRange () {
  const name = `${prefix}-range`
  const groupId = `${name}-group`
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 1 }] })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: name, messages: Array.from({ length: 50 }, (_, i) => ({ value: `${i}` })) })
  await producer.disconnect()
  await admin.setOffsets({ groupId, topic: name, partitions: [{ partition: 0, offset: '5000' }] })
  await read(groupId, name, 50)
}

async function administration () {
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  expect(metadata.topics[0].partitions.length === 5, JSON.stringify(metadata))
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '100' }] })
  const low = (await admin.fetchTopicOffsets(topic)).find(one => one.partition === 0).low
  expect(low === '100', `partition 0 begins with ${low}`)
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '12345678' }] }] })
  const [described] = (await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })).resources
  const retention = described.configEntries.find(one => one.configName === 'retention.ms').configValue
  expect(retention === '12345678', `retention.ms=${retention}`)
  expect((await admin.describeCluster()).brokers.length === 1, 'there is more than one broker')
  await admin.deleteTopics({ topics: [topic] })
  expect(!(await admin.listTopics()).includes(topic), 'it is listed after its deletion')
}

async function main () {
  await admin.connect()
  await test('create-topics', async () => {
    const created = await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] })
    expect(created && !(await admin.createTopics({ topics: [{ topic }] })), 'it was not created, or twice')
  })
  await test('produce', produce)
  await test('read', readAsGroup)
  await test('resume-and-seek', resumeAndSeek)
  await test('offsets-by-time', offsetsByTime)
  await test('groups', groups)
  await test('transactions', transactions)
  await test('out-of-range', outOfRange)
  await test('administration', administration)
  await admin.disconnect()
}

main().then(() => process.exit(0), error => {
  console.log(error.stack)
  process.exit(1)
})
